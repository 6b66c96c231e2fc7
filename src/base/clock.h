// Time as an injected dependency, so that the engine can be simulated and replayed.
#pragma once

#include <chrono>

namespace tokamak {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint Now() override { return std::chrono::steady_clock::now(); }
};

inline double ToSeconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace tokamak
