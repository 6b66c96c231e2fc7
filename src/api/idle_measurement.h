// A measurement of the machine that must not be made while the engine works.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

namespace tokamak {

// Measures once, on a thread of its own, when it is asked for and the engine idles; again at a
// later time when the engine worked meanwhile. Owned by the engine thread.
class IdleMeasurement {
 public:
  // `measure` (may be empty) and `work_done`, which grows when the engine works, are called from
  // the other thread.
  IdleMeasurement(std::function<std::optional<double>()> measure,
                  std::function<int64_t()> work_done);
  // Waits for a measurement under way.
  ~IdleMeasurement();
  IdleMeasurement(const IdleMeasurement&) = delete;
  IdleMeasurement& operator=(const IdleMeasurement&) = delete;

  // The result, if there is one yet. `idle`: it may be measured now.
  std::optional<double> Get(bool idle);

 private:
  static constexpr int kMaxTries = 5;

  void Measure();

  const std::function<std::optional<double>()> measure_;
  const std::function<int64_t()> work_done_;
  int tries_ = 0;
  std::optional<double> result_;
  std::atomic<bool> done_{false};  // the thread has written result_ and ended
  std::thread thread_;
};

}  // namespace tokamak
