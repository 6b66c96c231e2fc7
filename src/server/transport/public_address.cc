#include "server/transport/public_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace tokamak {
namespace {

struct Network {
  const char* address;
  int bits;
};

constexpr Network kSpecialIpv4[] = {
    {"0.0.0.0", 8},        // this network
    {"10.0.0.0", 8},       // private
    {"100.64.0.0", 10},    // shared by customers of a provider
    {"127.0.0.0", 8},      // this machine
    {"169.254.0.0", 16},   // link-local; clouds answer at 169.254.169.254
    {"172.16.0.0", 12},    // private
    {"192.0.0.0", 24},     // protocol assignments
    {"192.0.2.0", 24},     // documentation
    {"192.88.99.0", 24},   // 6to4 relays, no longer assigned
    {"192.168.0.0", 16},   // private
    {"198.18.0.0", 15},    // benchmarks
    {"198.51.100.0", 24},  // documentation
    {"203.0.113.0", 24},   // documentation
    {"224.0.0.0", 4},      // multicast
    {"240.0.0.0", 4},      // reserved, broadcast
};

// All that is public lies in here, but not all in here is public.
constexpr Network kGlobalIpv6 = {"2000::", 3};
constexpr Network kSpecialIpv6[] = {
    {"2001::", 23},      // protocol assignments: Teredo, benchmarks, ORCHID
    {"2001:db8::", 32},  // documentation
    {"2002::", 16},      // 6to4
    {"3fff::", 20},      // documentation
};

template <size_t kBytes>
bool Contains(const Network& network, int family, const std::array<uint8_t, kBytes>& address) {
  std::array<uint8_t, kBytes> prefix{};
  ::inet_pton(family, network.address, prefix.data());
  for (int bit = 0; bit < network.bits; ++bit) {
    const auto byte = static_cast<size_t>(bit / 8);
    if ((prefix[byte] ^ address[byte]) >> (7 - bit % 8) & 1) return false;
  }
  return true;
}

}  // namespace

bool IsPublicAddress(const std::string& address) {
  std::array<uint8_t, 4> v4{};
  if (::inet_pton(AF_INET, address.c_str(), v4.data()) == 1) {
    return std::none_of(std::begin(kSpecialIpv4), std::end(kSpecialIpv4),
                        [&](const Network& n) { return Contains(n, AF_INET, v4); });
  }
  std::array<uint8_t, 16> v6{};
  if (::inet_pton(AF_INET6, address.c_str(), v6.data()) != 1) return false;
  return Contains(kGlobalIpv6, AF_INET6, v6) &&
         std::none_of(std::begin(kSpecialIpv6), std::end(kSpecialIpv6),
                      [&](const Network& n) { return Contains(n, AF_INET6, v6); });
}

}  // namespace tokamak
