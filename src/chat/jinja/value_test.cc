#include "chat/jinja/value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/hash.h"

namespace tokamak::jinja {
namespace {

constexpr size_t kKeys = 1000;

// A dictionary of the first kKeys keys among make(0), make(1), … that `choose` accepts.
Value MakeChosen(const std::function<Value(int64_t)>& make,
                 const std::function<bool(int64_t)>& choose) {
  auto dict = std::make_unique<DictObject>();
  for (int64_t i = 0; dict->entries.size() < kKeys; ++i) {
    if (choose(i)) dict->Set(make(i), Value::Int(i));
  }
  return MakeDict(std::move(dict), nullptr);
}

// Chooses keys that would all fall into one bucket of an index with `hash`, a function that an
// attacker may know, and expects them to be spread over the buckets.
void ExpectSpread(const std::function<Value(int64_t)>& make,
                  const std::function<size_t(int64_t)>& hash) {
  const size_t buckets = MakeChosen(make, [](int64_t) { return true; }).dict().index.bucket_count();
  ASSERT_GE(buckets, kKeys);
  const Value chosen = MakeChosen(make, [&](int64_t i) { return hash(i) % buckets == 0; });
  const DictObject& dict = chosen.dict();
  ASSERT_EQ(dict.index.bucket_count(), buckets);
  size_t longest = 0;
  for (size_t i = 0; i < buckets; ++i) longest = std::max(longest, dict.index.bucket_size(i));
  EXPECT_LE(longest, 32u);
  for (const auto& [key, value] : dict.entries) EXPECT_EQ(dict.Find(key), &value);
}

TEST(DictObject, SpreadsTextsThatWereChosenToCollide) {
  const auto name = [](int64_t i) { return std::to_string(i); };
  ExpectSpread([&](int64_t i) { return Value::String(name(i)); },
               [&](int64_t i) { return Hash64(name(i).data(), name(i).size()); });
}

TEST(DictObject, SpreadsNumbersThatWereChosenToCollide) {
  ExpectSpread([](int64_t i) { return Value::Int(i); },
               [](int64_t i) { return std::hash<double>()(static_cast<double>(i)); });
}

TEST(DictObject, FindsNumbersAsPythonComparesThem) {
  auto dict = std::make_unique<DictObject>();
  for (int i = 0; i < 20; ++i) dict->Set(Value::Int(i), Value::Int(i));
  const auto found = [&](const Value& key) {
    const Value* value = dict->Find(key);
    return value == nullptr ? -1 : value->integer();
  };
  EXPECT_EQ(found(Value::Float(-0.0)), 0);
  EXPECT_EQ(found(Value::Bool(true)), 1);
  EXPECT_EQ(found(Value::Float(19.0)), 19);
  EXPECT_EQ(found(Value::Float(19.5)), -1);
}

}  // namespace
}  // namespace tokamak::jinja
