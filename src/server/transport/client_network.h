// The name of a client without a key: its address or network.
#pragma once

#include <string>

namespace tokamak {

// Returns an IPv4 address as it is ("10.0.0.7"). For an IPv6 address, returns the network that
// providers give to one customer ("2001:db8::/64"). `address` may have a scope ("fe80::1%eth0").
std::string ClientNetwork(const std::string& address);

}  // namespace tokamak
