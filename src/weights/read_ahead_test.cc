#include "weights/read_ahead.h"

#include <gtest/gtest.h>

#include <vector>

namespace tokamak {
namespace {

constexpr uint64_t kPiece = uint64_t{1} << 20;

// Reads a piece at `offset`; adds what is prefetched to `asked`.
void Read(ReadAhead& ahead, uint64_t offset, std::vector<ReadAhead::Range>& asked) {
  const ReadAhead::Range range = ahead.Next(offset);
  if (range.empty()) return;
  if (!asked.empty() && asked.back().end == range.begin) {
    asked.back().end = range.end;
  } else {
    asked.push_back(range);
  }
}

TEST(ReadAhead, StaysAheadOfAReaderAndAsksForEachByteOnce) {
  ReadAhead ahead;
  std::vector<ReadAhead::Range> asked;
  for (uint64_t offset = 5; offset < 40 * ReadAhead::kAhead; offset += kPiece) {
    Read(ahead, offset, asked);
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].begin, 5u);
    EXPECT_GE(asked[0].end, offset + ReadAhead::kAhead);
    EXPECT_LE(asked[0].end, offset + 2 * ReadAhead::kAhead);
  }
}

TEST(ReadAhead, AsksForEachByteOnceIfPlacesAreReadByTurns) {
  ReadAhead ahead;
  constexpr uint64_t kApart = 100 * ReadAhead::kAhead;
  std::vector<ReadAhead::Range> asked[3];
  for (uint64_t offset = 0; offset < 20 * ReadAhead::kAhead; offset += kPiece) {
    for (uint64_t place = 0; place < 3; ++place) {
      Read(ahead, place * kApart + offset, asked[place]);
      ASSERT_EQ(asked[place].size(), 1u);
      EXPECT_EQ(asked[place][0].begin, place * kApart);
      EXPECT_GE(asked[place][0].end, place * kApart + offset + ReadAhead::kAhead);
    }
  }
}

TEST(ReadAhead, BeginsAnewAfterMoreJumpsThanItRemembers) {
  ReadAhead ahead;
  for (uint64_t jump = 0; jump <= 3 * ReadAhead::kPlaces; ++jump) {
    const uint64_t offset = (3 * ReadAhead::kPlaces - jump) * 1000 * ReadAhead::kAhead;
    const ReadAhead::Range range = ahead.Next(offset);
    EXPECT_EQ(range.begin, offset);
    EXPECT_EQ(range.end, offset + 2 * ReadAhead::kAhead);
  }
}

}  // namespace
}  // namespace tokamak
