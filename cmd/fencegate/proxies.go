package main

import (
	"fmt"
	"net/netip"
)

// proxyFlag is an address, or a network of them.
type proxyFlag netip.Prefix

// MarshalText writes the flag.
func (p proxyFlag) MarshalText() ([]byte, error) { return netip.Prefix(p).MarshalText() }

// UnmarshalText reads the flag.
func (p *proxyFlag) UnmarshalText(text []byte) error {
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil {
		address, addressErr := netip.ParseAddr(string(text))
		if addressErr != nil {
			return fmt.Errorf("%q is no address (10.0.0.1) and no network (10.0.0.0/8)", text)
		}
		prefix = netip.PrefixFrom(address.Unmap().WithZone(""), address.Unmap().BitLen())
	}
	*p = proxyFlag(prefix.Masked())
	return nil
}

func prefixes(flags []proxyFlag) []netip.Prefix {
	var all []netip.Prefix
	for _, flag := range flags {
		all = append(all, netip.Prefix(flag))
	}
	return all
}
