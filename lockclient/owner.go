package lockclient

import (
	"crypto/rand"
	"os"
	"strconv"
)

const hostBytesMax = 128

// processOwner names the host and the process, and is unique.
func processOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	if len(host) > hostBytesMax {
		host = host[:hostBytesMax]
	}
	return host + ":" + strconv.Itoa(os.Getpid()) + ":" + rand.Text()[:10]
}
