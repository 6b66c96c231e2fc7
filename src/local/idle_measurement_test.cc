#include "local/idle_measurement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tokamak {
namespace {

// Calls Get until there is a result or more than `tries` measurements have been made.
std::optional<double> Ask(IdleMeasurement& measurement, const std::atomic<int>& made, int tries) {
  for (int i = 0; i < 4000; ++i) {
    const std::optional<double> result = measurement.Get(true);
    if (result || made > tries) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

TEST(IdleMeasurement, MeasuresOnceAndOnlyWhenIdle) {
  std::atomic<int> made{0};
  IdleMeasurement measurement([&] { return std::optional<double>(++made); }, [] { return 7; });
  EXPECT_FALSE(measurement.Get(false));
  EXPECT_EQ(made, 0);
  EXPECT_EQ(Ask(measurement, made, 100), 1.0);
  EXPECT_EQ(Ask(measurement, made, 100), 1.0);
  EXPECT_EQ(measurement.Get(false), 1.0);
  EXPECT_EQ(made, 1);
}

TEST(IdleMeasurement, DiscardsMeasurementsTakenWhileTheEngineWorked) {
  std::atomic<int> made{0};
  std::atomic<int64_t> work{0};
  const auto measure = [&]() -> std::optional<double> {
    if (++made < 3) ++work;
    return made;
  };
  IdleMeasurement measurement(measure, [&] { return work.load(); });
  EXPECT_EQ(Ask(measurement, made, 100), 3.0);
}

TEST(IdleMeasurement, GivesUpWhereNothingCanBeMeasured) {
  std::atomic<int> made{0};
  const auto fail = [&]() -> std::optional<double> {
    ++made;
    return std::nullopt;
  };
  IdleMeasurement measurement(fail, [] { return 0; });
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(measurement.Get(true));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LE(made, 5);
  IdleMeasurement none(nullptr, nullptr);
  EXPECT_FALSE(none.Get(true));
}

}  // namespace
}  // namespace tokamak
