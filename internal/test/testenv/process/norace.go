//go:build !race

package process

// RaceDetector is true if the test was built with the race detector.
const RaceDetector = false
