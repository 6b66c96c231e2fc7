#include "base/function_ref.h"

#include <gtest/gtest.h>

#include <memory>

namespace tokamak {
namespace {

int Apply(FunctionRef<int(int)> f, int x) { return f(x); }

TEST(FunctionRef, CallsTheOriginalAndNotACopy) {
  int calls = 0;
  auto counting = [&calls, own = 0](int x) mutable {
    calls = ++own;
    return x + own;
  };
  EXPECT_EQ(Apply(counting, 10), 11);
  EXPECT_EQ(Apply(counting, 10), 12);
  EXPECT_EQ(calls, 2);
}

TEST(FunctionRef, TakesConstCallablesAndMoveOnlyArguments) {
  const auto add = [](int x) { return x + 1; };
  EXPECT_EQ(Apply(add, 1), 2);
  auto take = [](std::unique_ptr<int> p) { return *p; };
  FunctionRef<int(std::unique_ptr<int>)> ref = take;
  EXPECT_EQ(ref(std::make_unique<int>(5)), 5);
}

TEST(FunctionRef, CopiesReferToTheSameCallable) {
  int calls = 0;
  auto count = [&] { ++calls; };
  FunctionRef<void()> first = count;
  FunctionRef<void()> second = first;
  first();
  second();
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace tokamak
