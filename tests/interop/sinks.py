"""What the scripts share that compare the chunks of a Sentry SDK with those of profbridge."""

import gzip
import http.server
import json
import threading


def chunks(data):
    """The payloads of the profile chunks in an envelope."""
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and "profile" in value and "frames" in value["profile"]:
            yield value


class ChunkSink(http.server.ThreadingHTTPServer):
    """A Sentry that keeps the chunks that it gets."""

    def __init__(self):
        kept = self.kept = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def body(self):
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def do_POST(self):
                body = self.body()
                kept.extend(chunks(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()
