// Package e2e holds the black-box tests of the shipper binary: the real program as a process of its own, on embedded
// and on real Kafka, killed and cut off while a writer writes. Every test ends by comparing the topic with the files,
// byte for byte: nothing lost, nothing doubled, nothing out of order.
package e2e
