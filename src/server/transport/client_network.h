// The name of a client where there are no keys: its address or network.
#pragma once

#include <string>

namespace tokamak {

// An IPv4 address as it is, "10.0.0.7"; the network of an IPv6 address, of the size that customers
// get, "2001:db8::/64". `address` is one, perhaps with a scope, "fe80::1%eth0".
std::string ClientNetwork(const std::string& address);

}  // namespace tokamak
