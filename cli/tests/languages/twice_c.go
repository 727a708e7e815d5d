// Frees a C block twice, as a faulty wrapper may.
package main

// #include <stdlib.h>
import "C"

func main() {
	block := C.malloc(100)
	C.free(block)
	C.free(block)
}
