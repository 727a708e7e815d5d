// Holds 64 MiB of Go's own memory.
package main

import (
	"fmt"
	"os"
)

var kept [][]byte

func main() {
	for i := 0; i < 64; i++ {
		array := make([]byte, 1<<20)
		for j := range array {
			array[j] = 1
		}
		kept = append(kept, array)
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
