// A measurement of the machine that must not run while the engine works.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

namespace tokamak {

// Measures once, on its own thread, when Get is called while the engine is idle. Measures again if
// the engine worked meanwhile, kMaxTries times in all. Engine thread only.
class IdleMeasurement {
 public:
  // The measuring thread calls both. `measure` may be empty; `work_done` counts the engine's work.
  IdleMeasurement(std::function<std::optional<double>()> measure,
                  std::function<int64_t()> work_done);
  // Waits for a running measurement.
  ~IdleMeasurement();
  IdleMeasurement(const IdleMeasurement&) = delete;
  IdleMeasurement& operator=(const IdleMeasurement&) = delete;

  // Returns the result, if known. `idle`: a measurement may start now.
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
