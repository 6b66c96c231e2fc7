#include "server/transport/client_network.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>

namespace tokamak {

std::string ClientNetwork(const std::string& address) {
  in6_addr parsed;
  const std::string unscoped = address.substr(0, address.find('%'));
  if (inet_pton(AF_INET6, unscoped.c_str(), &parsed) != 1) return address;
  std::fill(parsed.s6_addr + 8, parsed.s6_addr + 16, uint8_t{0});
  char text[INET6_ADDRSTRLEN];
  return std::string(inet_ntop(AF_INET6, &parsed, text, sizeof(text))) + "/64";
}

}  // namespace tokamak
