// A clock that tests set.
#pragma once

#include "base/clock.h"

namespace tokamak {

// Advances only by Advance and Set.
class ManualClock final : public Clock {
 public:
  TimePoint Now() override { return now_; }
  void Advance(Duration by) { now_ += by; }
  void Set(TimePoint now) { now_ = now; }

 private:
  TimePoint now_{};
};

}  // namespace tokamak
