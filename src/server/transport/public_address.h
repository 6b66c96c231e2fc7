// Which addresses are on the public internet.
#pragma once

#include <string>

namespace tokamak {

// Returns false for all others: private and shared networks, this machine, links, multicast,
// documentation, benchmarks and reserved ranges (IANA's special-purpose registries), for IPv6
// addresses that hold an IPv4 address (mapped, compatible, translated, 6to4, Teredo), because what
// they reach depends on the network, and for texts that are not addresses.
bool IsPublicAddress(const std::string& address);

}  // namespace tokamak
