// A Go program: goroutines with their own stacks, moved when they grow, switched by the runtime's assembly code.
package main

import (
	"fmt"
	"io"
	"os"
)

//go:noinline
func goLeaf(rounds uint64) uint64 {
	x := uint64(88172645463325252)
	for i := uint64(0); i < rounds; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func goOuter(out chan uint64) {
	for {
		select {
		case out <- goLeaf(2000000):
		default:
		}
	}
}

func main() {
	out := make(chan uint64)
	go goOuter(out)
	fmt.Println("ready")
	_, _ = io.ReadAll(os.Stdin)
}
