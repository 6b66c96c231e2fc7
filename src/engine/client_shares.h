// ClientShares: divides a limited number of places fairly among clients.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/check.h"

namespace tokamak {

// A client may take any free place. If none is free, it still gets its fair share: the number of
// places divided by the number of clients that hold any, itself included. So nobody is kept out
// while there are as many places as clients, and n clients hold at most (1 + 1/2 + ... + 1/n) times
// the number of places.
class ClientShares {
 public:
  explicit ClientShares(int64_t places) : places_(places) {}

  bool MayTake(const std::string& client) const {
    if (total_ < places_) return true;
    const auto found = taken_.find(client);
    const int64_t own = found == taken_.end() ? 0 : found->second;
    const auto clients = static_cast<int64_t>(taken_.size()) + (own == 0 ? 1 : 0);
    return own < places_ / clients;
  }
  void Take(const std::string& client) {
    ++taken_[client];
    ++total_;
  }
  void Give(const std::string& client) {
    const auto found = taken_.find(client);
    CHECK(found != taken_.end());
    if (--found->second == 0) taken_.erase(found);
    --total_;
  }
  int64_t total() const { return total_; }

 private:
  const int64_t places_;
  int64_t total_ = 0;
  std::map<std::string, int64_t> taken_;
};

}  // namespace tokamak
