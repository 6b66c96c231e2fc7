// Compares with transformers' frequencies and angles (tests/golden/rope.json, made by
// make_rope.py).
#include "nn/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nn/testing/random_tensors.h"
#include "ops/reference/reference_ops.h"

namespace tokamak::nn {
namespace {

nlohmann::ordered_json Goldens() {
  std::ifstream stream(TOKAMAK_SOURCE_DIR "/tests/golden/rope.json");
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(stream);
  json.erase("made_with");
  return json;
}

Result<RopeSpec> Parse(const nlohmann::ordered_json& fields, int32_t head_dim,
                       int32_t max_positions) {
  Result<JsonValue> config = ParseConfigJson(fields.dump(), "config.json");
  CHECK(config.ok());
  ConfigReader reader(*config, "config.json");
  RopeSpec spec = ParseRope(reader, head_dim, max_positions, {.partial_rotary_factor = 1});
  return reader.Finish(spec);
}

RopeSpec ParseGolden(const nlohmann::ordered_json& golden) {
  Result<RopeSpec> spec = Parse({{"rope_parameters", golden["rope_parameters"]}},
                                golden["head_dim"], golden["max_position_embeddings"]);
  CHECK_MSG(spec.ok(), spec.status().ToString());
  return *spec;
}

TEST(Rope, FrequenciesAreThoseOfTheReference) {
  const nlohmann::ordered_json goldens = Goldens();
  for (const auto& [name, golden] : goldens.items()) {
    const RopeSpec spec = ParseGolden(golden);
    const std::vector<float> frequencies = RopeFrequencies(spec, golden["context"]);
    ASSERT_EQ(frequencies.size(), golden["frequencies"].size()) << name;
    int exact = 0;
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const float expected = golden["frequencies"][i];
      exact += frequencies[i] == expected;
      // One step of float32 at most: the reference's power function is not correctly rounded.
      EXPECT_NEAR(frequencies[i], expected, std::abs(expected) * 0x1p-22) << name << " " << i;
    }
    EXPECT_GE(exact, static_cast<int>(frequencies.size()) - 3) << name;
    EXPECT_NEAR(spec.attention_factor, golden["attention_factor"].get<double>(), 1e-9) << name;
  }
}

TEST(Rope, TableHoldsTheReferencesCosinesAndSines) {
  const std::unique_ptr<Ops> ops = MakeReferenceOps();
  const nlohmann::ordered_json goldens = Goldens();
  for (const auto& [name, golden] : goldens.items()) {
    Result<Rope> rope = Rope::Make(ParseGolden(golden), golden["context"], *ops);
    ASSERT_TRUE(rope.ok()) << rope.status().ToString();
    const RopeTable& table = rope->table();
    EXPECT_EQ(table.rotary_dim, golden["head_dim"].get<int>());
    const auto half = static_cast<size_t>(table.rotary_dim / 2);
    for (size_t p = 0; p < golden["positions"].size(); ++p) {
      const int64_t position = golden["positions"][p];
      for (size_t i = 0; i < half; ++i) {
        // One float32 step in a frequency changes the angle by position · frequency · 2⁻²³ radians.
        const double slack =
            1e-6 + static_cast<double>(position) * golden["frequencies"][i].get<double>() * 0x1p-22;
        EXPECT_NEAR(table.cos_sin.Row<float>(position)[i], golden["cos"][p][i].get<double>(), slack)
            << name << " position " << position << " pair " << i;
        EXPECT_NEAR(table.cos_sin.Row<float>(position)[half + i], golden["sin"][p][i].get<double>(),
                    slack)
            << name << " position " << position << " pair " << i;
      }
    }
  }
}

TEST(Rope, ReadsOlderSpellings) {
  const Result<RopeSpec> inside = Parse({{"rope_parameters",
                                          {{"rope_type", "linear"},
                                           {"rope_theta", 5e5},
                                           {"factor", 4},
                                           {"partial_rotary_factor", 0.5}}}},
                                        64, 2048);
  const Result<RopeSpec> beside = Parse({{"rope_theta", 5e5},
                                         {"partial_rotary_factor", 0.5},
                                         {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}},
                                        64, 2048);
  ASSERT_TRUE(inside.ok()) << inside.status().ToString();
  ASSERT_TRUE(beside.ok()) << beside.status().ToString();
  EXPECT_EQ(inside->rotary_dim, 32);
  EXPECT_EQ(beside->rotary_dim, 32);
  EXPECT_EQ(RopeFrequencies(*inside, 2048), RopeFrequencies(*beside, 2048));
}

TEST(Rope, FactorsReplaceLlama3Scaling) {
  // GGUF converters store the scaling as unscaled divided by scaled frequencies.
  const nlohmann::ordered_json golden = Goldens()["llama3"];
  RopeSpec plain;
  plain.theta = golden["rope_parameters"]["rope_theta"];
  plain.rotary_dim = golden["head_dim"];
  const std::vector<float> frequencies = RopeFrequencies(plain, 1024);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    plain.freq_factors.push_back(frequencies[i] / golden["frequencies"][i].get<float>());
  }
  const std::vector<float> divided = RopeFrequencies(plain, 1024);
  for (size_t i = 0; i < divided.size(); ++i) {
    const double expected = golden["frequencies"][i];
    EXPECT_NEAR(divided[i], expected, expected * 0x1p-22);
  }
}

TEST(Rope, LongRopeScalesByTheServedContext) {
  const nlohmann::ordered_json goldens = Goldens();
  const RopeSpec longrope = ParseGolden(goldens["longrope_long"]);
  EXPECT_EQ(RopeFrequencies(longrope, 4096)[5],
            goldens["longrope_short"]["frequencies"][5].get<float>());
  EXPECT_NE(RopeFrequencies(longrope, 4097)[5], RopeFrequencies(longrope, 4096)[5]);
}

// Pairs of a head by the dimension of their position, as text: 0 is time.
std::string DimensionsOf(const std::vector<int32_t>& sections) {
  RopeSpec spec;
  spec.sections = sections;
  spec.sections_interleaved = true;
  std::string dimensions;
  for (const RopeSection& section : RopeSections(spec)) {
    EXPECT_EQ(static_cast<size_t>(section.first), dimensions.size());
    dimensions.append(static_cast<size_t>(section.pairs),
                      static_cast<char>('0' + section.dimension));
  }
  return dimensions;
}

// The reference assigns them so (recomposition_frequencies of Qwen3VLTextRotaryEmbedding), also
// where there are too few pairs for a section.
TEST(Rope, InterleavedSectionsAlternateWhileThereArePairs) {
  EXPECT_EQ(DimensionsOf({2, 2, 2}), "012012");
  EXPECT_EQ(DimensionsOf({5, 1, 1}), "0120000");
  EXPECT_EQ(DimensionsOf({3, 1, 2}), "012002");
  EXPECT_EQ(DimensionsOf({1, 3, 1}), "01201");
}

TEST(Rope, RefusesAnAbsurdContextWithNumbers) {
  RopeSpec spec;
  spec.theta = 10000;
  spec.rotary_dim = 128;
  const std::unique_ptr<Ops> ops = MakeReferenceOps();
  const Result<Rope> rope = Rope::Make(spec, 1 << 30, *ops);
  EXPECT_EQ(rope.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(rope.status().message().find("1073741824 positions"), std::string::npos);
}

// Families whose reference rotates whole heads have no default for the fraction.
TEST(Rope, RefusesPartialRotationWhereTheFamilyRotatesWholeHeads) {
  const auto parse = [](const char* text) {
    const Result<JsonValue> config = ParseConfigJson(text, "config.json");
    CHECK(config.ok());
    ConfigReader reader(*config, "config.json");
    ParseRope(reader, 64, 2048);
    return reader.Finish();
  };
  EXPECT_TRUE(parse(R"({"partial_rotary_factor": 1.0})").ok());
  EXPECT_TRUE(parse(R"({"rope_parameters": {"partial_rotary_factor": 1}})").ok());
  EXPECT_EQ(parse(R"({"partial_rotary_factor": 0.5})").message(),
            "config.json: partial_rotary_factor: is 0.5, but this architecture is implemented only "
            "for 1");
  EXPECT_EQ(parse(R"({"rope_parameters": {"partial_rotary_factor": 0.5}})").message(),
            "config.json: rope_parameters.partial_rotary_factor: is 0.5, but this architecture is "
            "implemented only for 1");
}

TEST(Rope, YarnNeedsAFactorAndNullMeansTheExtensionOfTheContext) {
  const nlohmann::ordered_json scaling = {{"rope_type", "yarn"},
                                          {"original_max_position_embeddings", 512}};
  const Result<RopeSpec> absent = Parse({{"rope_scaling", scaling}}, 64, 2048);
  EXPECT_NE(absent.status().ToString().find("rope_scaling.factor: is missing"), std::string::npos);
  nlohmann::ordered_json with_null = scaling;
  with_null["factor"] = nullptr;
  const Result<RopeSpec> extended = Parse({{"rope_scaling", with_null}}, 64, 2048);
  ASSERT_TRUE(extended.ok()) << extended.status().ToString();
  EXPECT_EQ(extended->factor, 4);
}

void ExpectError(const Result<RopeSpec>& spec, const std::string& part) {
  ASSERT_FALSE(spec.ok());
  EXPECT_NE(spec.status().ToString().find(part), std::string::npos) << spec.status().ToString();
}

TEST(Rope, ErrorsNameTheField) {
  ExpectError(Parse({{"rope_scaling", {{"rope_type", "spiral"}}}}, 64, 2048),
              "rope_scaling.rope_type: \"spiral\" is not supported");
  ExpectError(Parse({{"rope_scaling", {{"rope_type", "linear"}}}}, 64, 2048),
              "rope_scaling.factor");
  ExpectError(
      Parse({{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"surprise", 1}}}}, 64, 2048),
      "rope_scaling.surprise");
  ExpectError(Parse({{"partial_rotary_factor", 0.3}}, 10, 2048), "3 rotary dimensions");
  ExpectError(Parse({{"rope_scaling",
                      {{"rope_type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}}}},
                    64, 2048),
              "rope_scaling.short_factor: has 1 elements, expected 32");
}

}  // namespace
}  // namespace tokamak::nn
