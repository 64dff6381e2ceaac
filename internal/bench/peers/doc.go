// Package peers runs other lock services, to measure beside them: each as a process of its own, with a directory of its
// own that goes when it ends, on free ports of the loopback interface. What is not on the machine is [ErrAbsent];
// nothing is installed.
package peers
