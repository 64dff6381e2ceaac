//go:build race

package program

// RaceDetector is true if the test was built with the race detector.
const RaceDetector = true
