#include "loadgen/event_stream.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace tokamak::loadgen {
namespace {

std::vector<std::string> Events(const std::vector<std::string>& pieces) {
  EventStream stream;
  std::vector<std::string> events;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(stream
                    .Feed(piece,
                          [&](std::string_view data) {
                            events.emplace_back(data);
                            return Status();
                          })
                    .ok());
  }
  return events;
}

TEST(EventStream, FindsEventsHoweverTheBytesAreSplit) {
  using List = std::vector<std::string>;
  EXPECT_EQ(Events({"data: a\n\ndata: b\n\n"}), (List{"a", "b"}));
  EXPECT_EQ(Events({"da", "ta: a", "\n", "\nda", "ta: b\n\n"}), (List{"a", "b"}));
  EXPECT_EQ(Events({"data: a\r", "\n\r\ndata: b\r\rdata: c\n\n"}), (List{"a", "b", "c"}));
  EXPECT_EQ(Events({": comment\nevent: x\nid: 1\ndata:a\ndata:  b\n\n"}), (List{"a\n b"}));
  EXPECT_EQ(Events({"\n\nevent: x\n\ndata: not ended\n"}), List{});
}

TEST(EventStream, RefusesAnEventThatNeverEnds) {
  EventStream stream;
  const std::string piece(size_t{1} << 16, 'x');
  Status status;
  for (size_t fed = 0; fed <= EventStream::kMaxEventBytes && status.ok(); fed += piece.size()) {
    status = stream.Feed(piece, [](std::string_view) { return Status(); });
  }
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
}

TEST(EventStream, ReturnsTheErrorOfItsReceiver) {
  EventStream stream;
  const Status status = stream.Feed("data: a\n\ndata: b\n\n", [](std::string_view data) -> Status {
    return data == "b" ? DataLoss("no b") : Status();
  });
  EXPECT_EQ(status.message(), "no b");
}

TEST(ParseStreamedChunk, ParsesTheChunksOfServers) {
  const auto chat = ParseStreamedChunk(
      R"({"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": null}]})");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->text, "Hi");
  EXPECT_FALSE(chat->finished || chat->done || chat->usage);

  const auto text = ParseStreamedChunk(R"({"choices": [{"text": "a", "finish_reason": "stop"}]})");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->text, "a");
  EXPECT_TRUE(text->finished);

  const auto usage = ParseStreamedChunk(
      R"({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3,
          "prompt_tokens_details": {"cached_tokens": 4}}})");
  ASSERT_TRUE(usage.ok() && usage->usage);
  EXPECT_EQ(usage->usage->prompt_tokens, 7);
  EXPECT_EQ(usage->usage->cached_tokens, 4);
  EXPECT_EQ(usage->usage->completion_tokens, 3);

  EXPECT_TRUE(ParseStreamedChunk("[DONE]")->done);
}

TEST(ParseStreamedChunk, ReportsMalformedChunksAndErrorsOfTheServer) {
  EXPECT_EQ(ParseStreamedChunk("[1]").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseStreamedChunk("{").status().code(), StatusCode::kDataLoss);
  const Status error = ParseStreamedChunk(R"({"error": {"message": "full"}})").status();
  EXPECT_EQ(error.message(), "the server: full");
  EXPECT_EQ(ErrorMessage(R"({"error": "plain"})"), "plain");
  EXPECT_EQ(ErrorMessage("<html>"), "<html>");
  // Values of wrong types count as absent; counts never overflow.
  const auto odd = ParseStreamedChunk(
      R"({"choices": [3, {"delta": "x"}], "usage": {"prompt_tokens": 1e300,
          "completion_tokens": -5, "prompt_tokens_details": []}})");
  ASSERT_TRUE(odd.ok() && odd->usage);
  EXPECT_EQ(odd->usage->prompt_tokens, 1'000'000'000);
  EXPECT_EQ(odd->usage->completion_tokens, 0);
}

}  // namespace
}  // namespace tokamak::loadgen
