#!/bin/sh
# Makes an authority and a certificate for the gateway and for the agents, to try the example with. In production an
# authority that you have already does this.
#
#     ./make-certificates.sh gateway.internal
set -eu
name=${1:-localhost}
mkdir -p certificates
cd certificates
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 \
    -subj "/CN=profbridge example authority" -keyout ca.key -out ca.pem

# $1: file, $2: subject alternative name, $3: usage
certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
    printf 'subjectAltName=%s\nextendedKeyUsage=%s\n' "$2" "$3" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile "$1.ext" -out "$1.pem"
    rm "$1.csr" "$1.ext"
}

certificate gateway "DNS:$name" serverAuth
certificate agent "DNS:agent" clientAuth
chmod 600 ./*.key
