#include "local/idle_measurement.h"

#include <utility>

namespace tokamak {

IdleMeasurement::IdleMeasurement(std::function<std::optional<double>()> measure,
                                 std::function<int64_t()> work_done)
    : measure_(std::move(measure)), work_done_(std::move(work_done)) {}

IdleMeasurement::~IdleMeasurement() {
  if (thread_.joinable()) thread_.join();
}

std::optional<double> IdleMeasurement::Get(bool idle) {
  if (thread_.joinable()) {
    if (!done_.load(std::memory_order_acquire)) return std::nullopt;
    thread_.join();
  }
  if (!result_ && measure_ && idle && tries_ < kMaxTries) {
    ++tries_;
    done_ = false;
    thread_ = std::thread([this] { Measure(); });
    return std::nullopt;
  }
  return result_;
}

void IdleMeasurement::Measure() {
  const int64_t before = work_done_();
  const std::optional<double> result = measure_();
  if (work_done_() == before) result_ = result;
  done_.store(true, std::memory_order_release);
}

}  // namespace tokamak
