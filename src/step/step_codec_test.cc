#include "step/step_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/file.h"

namespace tokamak {
namespace {

// 2 groups; 40 tokens have masks of 2 words; up to 6 copies.
ExecutorLimits Limits() {
  return {.cache = {.groups = {{}, {}}, .num_device_blocks = 3},
          .max_seqs = 2,
          .max_step_tokens = 4,
          .max_step_drafts = 3,
          .max_context = 5,
          .vocab_size = 40,
          .max_encoder_rows = 4,
          .max_step_image_rows = 2,
          .num_moe_layers = 2,
          .max_experts = 3};
}

// Every list has an element, and no two fields the same bytes.
StepInput Input() {
  AdmitSequence admit{.slot = 1,
                      .tokens = {7, 8},
                      .num_prompt_tokens = 2,
                      .num_computed = 1,
                      .sampling = {.temperature = 0.5f,
                                   .dynatemp_range = 0.5625f,
                                   .dynatemp_exponent = 0.625f,
                                   .top_n_sigma = 1.25f,
                                   .top_k = 3,
                                   .top_p = 0.25f,
                                   .min_p = 0.125f,
                                   .typical_p = 0.75f,
                                   .xtc_probability = 0.375f,
                                   .xtc_threshold = 0.1875f,
                                   .repetition_penalty = 1.5f,
                                   .presence_penalty = -1.0f,
                                   .frequency_penalty = 2.0f,
                                   .repeat_last_n = 15,
                                   .dry_multiplier = 0.75f,
                                   .dry_base = 1.75f,
                                   .dry_allowed_length = 20,
                                   .dry_penalty_last_n = 21,
                                   .dry_breaker_tokens = {22},
                                   .dry_breaker_sequences = {{23, 24}},
                                   .logit_bias = {{9, -2.0f}},
                                   .allowed_token_ids = {17},
                                   .bad_words_ids = {{18, 19}},
                                   .seed = std::numeric_limits<uint64_t>::max(),
                                   .min_tokens = 4,
                                   .stop_token_ids = {39},
                                   .logprobs = 5},
                      .choice = 6,
                      .long_rope = true,
                      .images = {{.position = 29, .image = 30, .first_row = 31, .num_rows = 32}}};
  admit.images[0].grid_width = 33;
  return {.number = 300,
          .free = {0},
          .copies = {{.source_tier = Tier::kHost, .source = 10, .destination = 11}},
          .forget = {41},
          .encode = {{.id = 42,
                      .shape = {43, 44},
                      .grid_height = 45,
                      .grid_width = 46,
                      .image_height = 47,
                      .image_width = 48,
                      .num_rows = 49,
                      .values = {0.6875f}}},
          .admit = {admit},
          .fork = {{.slot = 25, .source = 26, .tokens = {27}}},
          .append = {{.slot = 1, .group = 1, .blocks = {12, kNoBlock}}},
          .rows = {{.slot = 1,
                    .num_tokens = 3,
                    .sample = true,
                    .masked = true,
                    .drafts = {13, 14},
                    .num_proposals = 3,
                    .num_candidates = 28}}};
}

std::vector<TokenMask> Masks() { return {{.slot = 1, .draw = 2, .allowed = {0x80000001, 0x02}}}; }

StepOutput Output() {
  const auto logprobs = [](int32_t token) {
    return TokenLogprobs{.token = {token, -1.0f}, .top = {{token + 1, -0.5f}}};
  };
  RowOutput row{.slot = 1,
                .health = RowHealth::kNotFinite,
                .tokens = {3},
                .logprobs = {logprobs(3)},
                .prompt_logprobs = {logprobs(5)},
                .proposals = {7},
                .candidates = {{8, -2.0f}}};
  return {
      .number = 2, .rows = {row}, .expert_loads = {1, 2, 3, 4, 5, -1}, .proposing_seconds = 0.5};
}

// Bytes from text: "01 f2" are two bytes, anything else is layout.
std::string Bytes(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size();) {
    if (hex[i] == ' ') {
      ++i;
      continue;
    }
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    i += 2;
  }
  return bytes;
}

// Written by hand from the description in base/codec.h and step/step_fields.h. If one of these
// changes, kStepVersion must change too.
std::string InputBytes() {
  return Bytes(
      "06"                                         // version
      "ac02"                                       // number
      "01 00"                                      // free
      "01 01 14 00 16"                             // copies: tier, block, tier, block
      "01 29"                                      // forget
      "01 2a 02 56 58 5a 5c 5e 60 62 01 0000303f"  // encode
      "01"                                         // admit
      "02 02 0e 10 04 02"
      "0000003f 0000103f 0000203f 0000a03f 06 0000803e 0000003e 0000403f"
      "0000c03e 0000403e 0000c03f 000080bf 00000040"
      "1e 0000403f 0000e03f 28 2a"       // repeat_last_n, DRY
      "01 2c 01 02 2e 30"                // dry_breaker_tokens, dry_breaker_sequences
      "01 12 000000c0 01 22"             // logit_bias, allowed_token_ids
      "01 02 24 26"                      // bad_words_ids
      "01 ffffffffffffffffff01"          // seed
      "08 01 4e 01 0a 00"                // min_tokens, stop_token_ids, logprobs, prompt_logprobs
      "0c 01"                            // choice, long_rope
      "01 3a 1e 3e 40 42"                // images
      "01 32 34 01 36"                   // fork
      "01 02 02 02 18 01"                // append
      "01 02 06 01 01 02 1a 1c 06 38");  // rows
}
std::string MaskBytes() { return Bytes("06 01 02 04 02 01000080 02000000"); }
std::string OutputBytes() {
  return Bytes(
      "06 02 01"                       // version, number, rows
      "02 01 01 06"                    // slot, health, tokens
      "01 06 000080bf 01 08 000000bf"  // logprobs
      "01 0a 000080bf 01 0c 000000bf"  // prompt_logprobs
      "01 0e"                          // proposals
      "01 10 000000c0"                 // candidates
      "06 02 04 06 08 0a 01"           // expert_loads
      "000000000000e03f");             // proposing_seconds
}

TEST(StepCodec, WritesTheDocumentedBytes) {
  ASSERT_EQ(kStepVersion, 6u) << "update the bytes in this test";
  EXPECT_EQ(Encode(Input()), InputBytes());
  EXPECT_EQ(Encode(Masks()), MaskBytes());
  EXPECT_EQ(Encode(Output()), OutputBytes());
}

// Fuzzing would get no further than the version of older ones.
TEST(StepCodec, SeedsOfItsFuzzerAreOfThisVersion) {
  const std::string folder = TOKAMAK_SOURCE_DIR "/tests/fuzz/corpus/step_codec_fuzz/";
  EXPECT_EQ(ReadWholeFile(folder + "input", 1000).value(), InputBytes());
  EXPECT_EQ(ReadWholeFile(folder + "masks", 1000).value(), MaskBytes());
  EXPECT_EQ(ReadWholeFile(folder + "output", 1000).value(), OutputBytes());
}

TEST(StepCodec, ReadsWhatItWrites) {
  EXPECT_EQ(*DecodeStepInput(InputBytes(), Limits()), Input());
  EXPECT_EQ(*DecodeTokenMasks(MaskBytes(), Limits()), Masks());
  const StepOutput output = *DecodeStepOutput(OutputBytes(), Limits());
  EXPECT_EQ(output, Output());
  EXPECT_EQ(output.expert_loads, Output().expert_loads);
  EXPECT_EQ(*DecodeStepInput(Encode(StepInput{}), {}), StepInput{});
}

TEST(StepCodec, KeepsTheBitsOfFloats) {
  for (const uint32_t bits :
       {0x7fc00001u, 0xffc12345u, 0x7f800001u, 0x80000000u, 0xff800000u, 1u}) {
    StepOutput output = Output();
    output.rows[0].logprobs[0].top[0].logprob = std::bit_cast<float>(bits);
    const auto decoded = DecodeStepOutput(Encode(output), Limits());
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(std::bit_cast<uint32_t>(decoded->rows[0].logprobs[0].top[0].logprob), bits);
  }
}

TEST(StepCodec, SendsOnlyTheParametersThatDecideWhatIsDrawn) {
  StepInput input = Input();
  input.admit[0].sampling.n = 3;
  input.admit[0].sampling.stop = {"stop"};
  input.admit[0].sampling.structured_output.emplace();
  EXPECT_EQ(*DecodeStepInput(Encode(input), Limits()), Input());
}

// The three kinds of messages, decoded without their values.
using DecodeAny = std::function<Status(std::string_view, const ExecutorLimits&)>;
struct Message {
  std::string bytes;
  DecodeAny decode;
};
std::vector<Message> Messages() {
  return {{InputBytes(), [](auto b, const auto& l) { return DecodeStepInput(b, l).status(); }},
          {MaskBytes(), [](auto b, const auto& l) { return DecodeTokenMasks(b, l).status(); }},
          {OutputBytes(), [](auto b, const auto& l) { return DecodeStepOutput(b, l).status(); }}};
}

TEST(StepCodec, RefusesOtherVersionsBeforeTheRest) {
  for (const Message& message : Messages()) {
    const Status status = message.decode("\x01 anything", Limits());
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_NE(status.message().find("version 1, but this build reads only version 6"),
              std::string::npos)
        << status.message();
  }
}

TEST(StepCodec, RefusesEveryPrefix) {
  for (const Message& message : Messages()) {
    for (size_t size = 0; size < message.bytes.size(); ++size) {
      const Status status = message.decode(message.bytes.substr(0, size), Limits());
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << size;
    }
    EXPECT_TRUE(message.decode(message.bytes, Limits()).ok());
    EXPECT_EQ(message.decode(message.bytes + '\0', Limits()).code(), StatusCode::kDataLoss);
  }
}

std::string InputError(const std::string& hex) {
  return std::string(DecodeStepInput(Bytes(hex), Limits()).status().message());
}

TEST(StepCodec, ErrorsNameTheFieldAndTheOffset) {
  EXPECT_EQ(InputError(""), "step input: version: byte 0: is cut off");
  EXPECT_EQ(InputError("06 80"), "step input: number: byte 1: is cut off");
  EXPECT_EQ(InputError("06 00 00 00 00 00 00 00 00 00 ff"),
            "step input: byte 10: 1 bytes follow the last field");
  EXPECT_EQ(InputError("06 00 00 00 00 00 00 00 00 02  00 02 00 00 00 00 00  02 02 01 03 00 00 00"),
            "step input: rows[1].masked: byte 20: is out of range for its type");
  EXPECT_EQ(InputError("06 00 00 01 02 00 00 00 00 00 00 00 00 00"),
            "step input: copies[0].source_tier: byte 4: is 2, which is not below 2");
  EXPECT_EQ(InputError("06 00 01 ffffffff7f"),
            "step input: free[0]: byte 3: is out of range for its type");
  EXPECT_EQ(InputError("06 00 00 00 00 00 01 00 02 0e 80"),
            "step input: admit[0].tokens[1]: byte 10: is cut off");
}

TEST(StepCodec, RefusesSecondEncodingsOfAValue) {
  EXPECT_EQ(InputError("06 8000"), "step input: number: byte 1: is not in its shortest form");
  EXPECT_EQ(InputError("8500"), "step input: version: byte 0: is not in its shortest form");
  EXPECT_EQ(InputError("06 ffffffffffffffffff02"),
            "step input: number: byte 1: is longer than 64 bits");
  EXPECT_EQ(InputError("06 ffffffffffffffffff8100"),
            "step input: number: byte 1: is longer than 64 bits");
}

TEST(StepCodec, RefusesCountsBeyondTheBytes) {
  EXPECT_EQ(InputError("06 00 00 06 00 00"),
            "step input: copies: byte 3: has 6 elements, but only 2 bytes follow");
  EXPECT_EQ(DecodeTokenMasks(Bytes("06 01 00 00 02 01000000 020000"), Limits()).status().message(),
            "token masks: masks[0].allowed: byte 4: has 2 elements, but only 7 bytes follow");
}

TEST(StepCodec, RefusesListsBeyondTheLimits) {
  struct Case {
    const char* field;
    std::function<void(StepInput&)> lengthen;  // to the limit, then beyond it
  };
  const Case cases[] = {
      {"free", [](StepInput& s) { s.free.push_back(0); }},
      {"copies", [](StepInput& s) { s.copies.resize(s.copies.size() < 6 ? 6 : 7); }},
      {"admit", [](StepInput& s) { s.admit.push_back(s.admit[0]); }},
      {"fork", [](StepInput& s) { s.fork.push_back(s.fork[0]); }},
      {"fork[0].tokens",
       [](StepInput& s) { s.fork[0].tokens.resize(s.fork[0].tokens.size() < 5 ? 5 : 6); }},
      {"forget", [](StepInput& s) { s.forget.resize(s.forget.size() < 4 ? 4 : 5); }},
      {"encode", [](StepInput& s) { s.encode.push_back(s.encode[0]); }},
      {"encode[0].shape",
       [](StepInput& s) { s.encode[0].shape.resize(s.encode[0].shape.size() < 8 ? 8 : 9); }},
      {"admit[0].images",
       [](StepInput& s) { s.admit[0].images.resize(s.admit[0].images.size() < 5 ? 5 : 6); }},
      {"append", [](StepInput& s) { s.append.resize(s.append.size() < 4 ? 4 : 5); }},
      {"rows", [](StepInput& s) { s.rows.push_back(s.rows[0]); }},
      {"admit[0].tokens",
       [](StepInput& s) { s.admit[0].tokens.resize(s.admit[0].tokens.size() < 5 ? 5 : 6); }},
      {"admit[0].logit_bias",
       [](StepInput& s) {
         auto& biases = s.admit[0].sampling.logit_bias;
         biases.resize(biases.size() < 4096 ? 4096 : 4097);
       }},
      {"admit[0].bad_words_ids",
       [](StepInput& s) {
         auto& words = s.admit[0].sampling.bad_words_ids;
         words.resize(words.size() < 2048 ? 2048 : 2049);
       }},
      {"admit[0].dry_breaker_sequences",
       [](StepInput& s) {
         auto& sequences = s.admit[0].sampling.dry_breaker_sequences;
         sequences.resize(sequences.size() < 32768 ? 32768 : 32769);
       }},
      {"admit[0].dry_breaker_tokens",
       [](StepInput& s) {
         auto& tokens = s.admit[0].sampling.dry_breaker_tokens;
         tokens.resize(tokens.size() < 40 ? 40 : 41);
       }},
      {"admit[0].stop_token_ids",
       [](StepInput& s) {  // 1,024 of the request, and the model's own
         auto& ids = s.admit[0].sampling.stop_token_ids;
         ids.resize(ids.size() < 1024 + 40 ? 1024 + 40 : 1024 + 41);
       }},
      {"admit[0].allowed_token_ids",
       [](StepInput& s) {
         std::vector<TokenId>& ids = s.admit[0].sampling.allowed_token_ids;
         ids.resize(ids.size() < 40 ? 40 : 41);
       }},
      {"append[0].blocks",
       [](StepInput& s) { s.append[0].blocks.resize(s.append[0].blocks.size() < 5 ? 5 : 6); }},
      {"rows[0].drafts", [](StepInput& s) { s.rows[0].drafts.push_back(1); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.field);
    StepInput step = Input();
    c.lengthen(step);
    EXPECT_EQ(*DecodeStepInput(Encode(step), Limits()), step);
    c.lengthen(step);
    const std::string error(DecodeStepInput(Encode(step), Limits()).status().message());
    EXPECT_TRUE(error.starts_with("step input: " + std::string(c.field) + ": byte ")) << error;
    EXPECT_NE(error.find("are allowed"), std::string::npos) << error;
  }
}

TEST(StepCodec, RefusesOutputsAndMasksBeyondTheLimits) {
  const auto output_error = [](const std::function<void(StepOutput&)>& change) {
    StepOutput output = Output();
    change(output);
    const Status status = DecodeStepOutput(Encode(output), Limits()).status();
    return status.ok() ? ""
                       : std::string(status.message().substr(0, status.message().find(": byte")));
  };
  using O = StepOutput;
  EXPECT_EQ(output_error([](O& o) { o.rows.resize(2); }), "");
  EXPECT_EQ(output_error([](O& o) { o.rows.resize(3); }), "step output: rows");
  EXPECT_EQ(output_error([](O& o) { o.expert_loads.push_back(1); }), "step output: expert_loads");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].tokens.resize(4); }), "");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].tokens.resize(5); }), "step output: rows[0].tokens");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].proposals.resize(3); }), "");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].proposals.resize(4); }),
            "step output: rows[0].proposals");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].candidates.resize(40); }), "");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].candidates.resize(41); }),
            "step output: rows[0].candidates");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].logprobs.resize(4); }), "");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].logprobs.resize(5); }),
            "step output: rows[0].logprobs");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].prompt_logprobs.resize(4); }), "");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].prompt_logprobs.resize(5); }),
            "step output: rows[0].prompt_logprobs");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].logprobs[0].top.resize(40); }), "");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].logprobs[0].top.resize(41); }),
            "step output: rows[0].logprobs[0].top");
  EXPECT_EQ(output_error([](O& o) { o.rows[0].logprobs[0].token.token_id = 39; }), "");
  for (const int32_t token : {40, -1}) {
    EXPECT_EQ(output_error([token](O& o) { o.rows[0].prompt_logprobs[0].top[0].token_id = token; }),
              "step output: rows[0].prompt_logprobs[0].top[0].token_id");
  }
  std::vector<TokenMask> masks(5);
  EXPECT_EQ(*DecodeTokenMasks(Encode(masks), Limits()), masks);
  masks.resize(6);
  EXPECT_EQ(DecodeTokenMasks(Encode(masks), Limits()).status().message(),
            "token masks: masks: byte 1: has 6 elements, but at most 5 are allowed");
  masks = {{.allowed = {1, 2, 3}}};
  EXPECT_EQ(DecodeTokenMasks(Encode(masks), Limits()).status().message(),
            "token masks: masks[0].allowed: byte 4: has 3 elements, but at most 2 are allowed");
}

}  // namespace
}  // namespace tokamak
