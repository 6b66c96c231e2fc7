#include "server/transport/client_network.h"

#include <gtest/gtest.h>

namespace tokamak {
namespace {

TEST(ClientNetwork, IsAnAddressOfIPv4) { EXPECT_EQ(ClientNetwork("10.0.0.7"), "10.0.0.7"); }

TEST(ClientNetwork, IsA64BitPrefixOfIPv6) {
  EXPECT_EQ(ClientNetwork("2001:db8::1"), "2001:db8::/64");
  EXPECT_EQ(ClientNetwork("2001:db8:0:0:ffff::2"), "2001:db8::/64");
  EXPECT_EQ(ClientNetwork("2001:db8:0:1::1"), "2001:db8:0:1::/64");
  EXPECT_EQ(ClientNetwork("::1"), "::/64");
}

TEST(ClientNetwork, IgnoresTheScopeOfALinkLocalAddress) {
  EXPECT_EQ(ClientNetwork("fe80::1%eth0"), "fe80::/64");
  EXPECT_EQ(ClientNetwork("fe80::2:3%7"), "fe80::/64");
}

}  // namespace
}  // namespace tokamak
