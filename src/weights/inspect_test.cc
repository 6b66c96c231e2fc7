#include "weights/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/printable.h"
#include "weights/testing/gguf_writer.h"

namespace tokamak {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

std::string Inspect(const GgufWriter& writer, bool json) {
  const auto file = GgufFile::FromParts({MakeMemoryBytes("model.gguf", writer.Bytes())});
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  std::ostringstream out;
  PrintInspection(**file, json, out);
  return out.str();
}

// An architecture and a tensor type that this build cannot run.
GgufWriter Unusual() {
  GgufWriter writer;
  writer.Set("general.architecture", "someday");
  writer.Set("long", std::string(1000, 'a'));
  writer.Set("control", "a\x1b[31m\nb");
  writer.Set("infinite", INFINITY);
  writer.Set("eps", 1e-5f);
  writer.SetArray("tokens", std::vector<std::string>(1000, "tok"));
  writer.AddRawTensor("iq", 16, {2, 256}, std::string(132, 'x'));
  writer.AddRawTensor("new", 777, {4}, "data");
  writer.AddTensor("f", DType::kF32, {3}, std::vector<float>{1, 2, 3});
  return writer;
}

TEST(Inspect, TextShowsEverythingAndAbbreviatesLongValues) {
  const std::string text = Inspect(Unusual(), false);
  EXPECT_THAT(text, HasSubstr("GGUF version 3"));
  EXPECT_THAT(text, HasSubstr("\"someday\""));
  EXPECT_THAT(text, HasSubstr("...\" (1000 bytes)"));
  EXPECT_THAT(text, HasSubstr("string[1000]"));
  EXPECT_THAT(text, HasSubstr("\"tok\", ...]"));
  EXPECT_THAT(text, HasSubstr("1e-05"));
  EXPECT_THAT(text, HasSubstr("\"a\\x1b[31m\\nb\""));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("IQ2_XXS"));
  EXPECT_THAT(text, HasSubstr("type 777"));
  EXPECT_LT(text.size(), 4000u);
}

TEST(Inspect, JsonContainsTheSame) {
  const nlohmann::json json = nlohmann::json::parse(Inspect(Unusual(), true));
  EXPECT_EQ(json["files"][0]["version"], 3);
  EXPECT_EQ(json["metadata"][0]["value"], "someday");
  EXPECT_EQ(json["metadata"][3]["value"], "inf");
  EXPECT_EQ(json["metadata"][5]["count"], 1000);
  EXPECT_EQ(json["metadata"][5]["value"].size(), 6u);
  EXPECT_EQ(json["tensors"][0]["shape"], nlohmann::json({2, 256}));
  EXPECT_EQ(json["tensors"][0]["readable"], false);
  EXPECT_TRUE(json["tensors"][1]["bytes"].is_null());
  EXPECT_EQ(json["tensors"][2]["bytes"], 12);
  EXPECT_EQ(json["totals"]["F32"]["elements"], 3);
}

TEST(Inspect, NamesAMissingFile) {
  std::ostringstream out;
  EXPECT_THAT(PrintInspection("/nowhere.gguf", false, out).ToString(), HasSubstr("/nowhere.gguf"));
}

TEST(Quoted, KeepsUtf8AndEscapesTheRest) {
  EXPECT_EQ(Quoted("plain"), "\"plain\"");
  EXPECT_EQ(Quoted("\u00e9 \u4e2d \U0001F600"), "\"\u00e9 \u4e2d \U0001F600\"");
  EXPECT_EQ(Quoted("\"\\\t\n"), "\"\\\"\\\\\\t\\n\"");
  EXPECT_EQ(Quoted(std::string("\0\x7f\xff", 3)), "\"\\x00\\x7f\\xff\"");
  // Overlong, surrogate, above U+10FFFF, cut short, C1 control.
  for (const char* bad : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xb8", "\xc2\x85"}) {
    EXPECT_THAT(Quoted(bad), MatchesRegex("\"(\\\\x[0-9a-f][0-9a-f])+\"")) << Quoted(bad);
  }
  EXPECT_EQ(Quoted(std::string(500, 'a'), 10), "\"" + std::string(10, 'a') + "...\"");
}

}  // namespace
}  // namespace tokamak
