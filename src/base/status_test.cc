#include "tokamak/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace tokamak {
namespace {

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "ok");
}

TEST(Status, AnErrorCarriesCodeAndMessageThroughCopies) {
  const Status status = DataLoss("model.gguf: {} bytes short at offset {}", 3, 128);
  const Status copy = status;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_FALSE(copy.ok());
  EXPECT_EQ(copy.code(), StatusCode::kDataLoss);
  EXPECT_EQ(copy.message(), "model.gguf: 3 bytes short at offset 128");
  EXPECT_EQ(copy.ToString(), "malformed data: model.gguf: 3 bytes short at offset 128");
}

TEST(Status, AnErrorWithTheOkCodeIsOk) {
  EXPECT_TRUE(Status(StatusCode::kOk, "ignored").ok());
  EXPECT_EQ(Status(StatusCode::kOk, "ignored").message(), "");
}

TEST(Status, ContextPrefixesTheMessageAndKeepsOk) {
  EXPECT_EQ(NotFound("no tensor {}", "x").WithContext("model.gguf").ToString(),
            "not found: model.gguf: no tensor x");
  EXPECT_TRUE(Status().WithContext("model.gguf").ok());
}

TEST(Status, EveryCodeHasAName) {
  for (int code = 0; code <= static_cast<int>(StatusCode::kInternal); ++code) {
    EXPECT_NE(StatusCodeName(static_cast<StatusCode>(code)), "unknown") << code;
  }
  EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(99)), "unknown");
}

TEST(Result, HoldsAValue) {
  Result<std::string> result = std::string("text");
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  EXPECT_EQ(*result, "text");
  EXPECT_EQ(result->size(), 4u);
}

TEST(Result, HoldsAMoveOnlyValue) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, MadeFromAnOkStatusIsAnInternalError) {
  const Result<int> result = Status();
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInternal);
}

TEST(ResultDeathTest, ReadingTheValueOfAnErrorEndsTheProcessWithItsMessage) {
  const Result<int> result = Unavailable("offline");
  EXPECT_DEATH(static_cast<void>(*result), "unavailable: offline");
}

Result<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("{} is odd", value);
  return value / 2;
}

Result<int> Quarter(int value) {
  ASSIGN_OR_RETURN(int half, Half(value));
  ASSIGN_OR_RETURN(half, Half(half));
  return half;
}

Status CheckAll(std::initializer_list<int> values) {
  for (int value : values) RETURN_IF_ERROR(Half(value).status());
  return Status();
}

TEST(Macros, PassOnTheFirstErrorAndOnlyErrors) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(7).status().message(), "7 is odd");
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_TRUE(CheckAll({2, 4}).ok());
  EXPECT_EQ(CheckAll({2, 5, 7}).message(), "5 is odd");
}

}  // namespace
}  // namespace tokamak
