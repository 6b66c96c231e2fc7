// Images in prompts: when they are encoded, and what the caches do for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "engine/drafts.h"
#include "engine/testing/engine_core_fixture.h"

namespace tokamak {
namespace {

constexpr TokenId kPlaceholder = 90;

class EngineImagesTest : public EngineCoreTest {
 protected:
  EngineImagesTest() {
    executor_.limits_.max_encoder_rows = 12;
    executor_.limits_.max_step_image_rows = 8;
  }

  // A request for one token whose prompt has `before` tokens, an image and `after` tokens.
  Arrival Ask(RequestId id, int32_t before, ImageId image, int32_t num_rows, int32_t after) {
    std::vector<TokenId> prompt(static_cast<size_t>(before), 1);
    prompt.insert(prompt.end(), static_cast<size_t>(num_rows), kPlaceholder);
    prompt.insert(prompt.end(), static_cast<size_t>(after), 2);
    Arrival arrival = Make(id, std::move(prompt), 1);
    if (num_rows > 0) arrival.images.push_back(MakeImage(before, image, num_rows));
    return arrival;
  }
  static ArrivalImage MakeImage(int32_t position, ImageId image, int32_t num_rows) {
    return {.span = {.position = position, .image = image, .num_rows = num_rows},
            .image = std::make_shared<EncodeImage>(
                EncodeImage{.id = image, .num_rows = num_rows, .values = {0.5f}})};
  }
  void Submit(Arrival arrival) {
    const Status status = core_->Submit(std::move(arrival));
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  // Runs a request alone. Returns the images that its steps encode.
  std::vector<ImageId> Run(Arrival arrival) {
    const size_t first = executor_.steps.size();
    Submit(std::move(arrival));
    RunAll();
    return Encoded(first);
  }
  std::vector<ImageId> Encoded(size_t first_step = 0) const {
    std::vector<ImageId> ids;
    for (size_t i = first_step; i < executor_.steps.size(); ++i) {
      for (const EncodeImage& image : executor_.steps[i].encode) ids.push_back(image.id);
    }
    return ids;
  }
  EngineStats Stats() const { return core_->stats(TimePoint{}); }
};

using Images = std::vector<ImageId>;

TEST_F(EngineImagesTest, AStepHasTheImageThatItsRowsNeed) {
  Start();
  Arrival arrival = Ask(1, 3, 77, 6, 2);
  const std::vector<TokenId> prompt = arrival.prompt;
  EXPECT_EQ(Run(std::move(arrival)), Images{77});
  ASSERT_EQ(executor_.steps.size(), 1u);
  const StepInput& step = executor_.steps[0];
  EXPECT_EQ(step.encode[0].values, std::vector<float>{0.5f});
  EXPECT_EQ(step.admit[0].tokens, prompt);
  EXPECT_EQ(step.admit[0].images,
            (std::vector<ImageSpan>{{.position = 3, .image = 77, .num_rows = 6}}));
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue(prompt, 1));
}

TEST_F(EngineImagesTest, ASharedImageIsEncodedOnce) {
  Start();
  Submit(Ask(1, 1, 77, 6, 0));
  Submit(Ask(2, 2, 77, 6, 0));
  RunAll();
  EXPECT_EQ(Encoded(), Images{77});
  EXPECT_EQ(Run(Ask(3, 3, 77, 6, 1)), Images{});
  EXPECT_EQ(Stats().images_encoded, 1);
  EXPECT_EQ(Stats().image_rows_cached, 6);
  EXPECT_EQ(Stats().image_rows_evicted, 0);
}

TEST_F(EngineImagesTest, AnImageOfAnEarlierTurnIsNotEncodedAgain) {
  Start();
  Arrival first = Ask(1, 2, 77, 6, 3);
  Arrival second = Ask(3, 2, 77, 6, 3);
  EXPECT_EQ(Run(std::move(first)), Images{77});
  EXPECT_EQ(Run(Ask(2, 0, 78, 8, 1)), Images{78});  // 77 must go
  EXPECT_EQ(Stats().image_rows_evicted, 6);
  second.prompt.insert(second.prompt.end(), {5, 6, 7, 8});
  EXPECT_EQ(Run(std::move(second)), Images{});
  EXPECT_EQ(results_.at({3, 0}).usage.cached_tokens, 8);  // whole blocks
  EXPECT_EQ(Stats().images_encoded, 2);
}

TEST_F(EngineImagesTest, ImagesWithTheSamePlaceholdersShareNoBlocks) {
  Start();
  EXPECT_EQ(Run(Ask(1, 2, 77, 6, 3)), Images{77});
  EXPECT_EQ(Run(Ask(2, 2, 78, 6, 3)), Images{78});
  EXPECT_EQ(results_.at({2, 0}).usage.cached_tokens, 2);
  // Blocks computed for text are of no use either.
  Submit(Make(3, std::vector<TokenId>(11, kPlaceholder), 1));
  RunAll();
  EXPECT_EQ(results_.at({3, 0}).usage.cached_tokens, 0);
}

TEST_F(EngineImagesTest, OtherRowsOfAnImageShareNoBlocks) {
  Start();
  EXPECT_EQ(Run(Ask(1, 0, 77, 8, 1)), Images{77});
  Arrival half = Ask(2, 0, 77, 8, 1);
  half.images[0].span.first_row = 4;
  half.images[0].span.num_rows = 4;
  EXPECT_EQ(Run(std::move(half)), Images{});
  EXPECT_EQ(results_.at({2, 0}).usage.cached_tokens, 0);
}

// A token between the rows has an embedding of its own.
TEST_F(EngineImagesTest, AnImageInSeveralSpansIsEncodedOnce) {
  Start();
  const auto in_lines = [this](RequestId id, ImageId image) {
    Arrival arrival = Ask(id, 1, image, 6, 1);
    arrival.prompt.insert(arrival.prompt.begin() + 5, 3);
    const ArrivalImage whole = arrival.images[0];
    arrival.images = {whole, whole};
    arrival.images[0].span.num_rows = 4;
    arrival.images[1].span = {.position = 6, .image = image, .first_row = 4, .num_rows = 2};
    return arrival;
  };
  Arrival arrival = in_lines(1, 77);
  const std::vector<TokenId> prompt = arrival.prompt;
  EXPECT_EQ(Run(std::move(arrival)), Images{77});
  ASSERT_EQ(executor_.steps.size(), 1u);
  EXPECT_EQ(executor_.steps[0].admit[0].images,
            (std::vector<ImageSpan>{{.position = 1, .image = 77, .num_rows = 4},
                                    {.position = 6, .image = 77, .first_row = 4, .num_rows = 2}}));
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue(prompt, 1));
  EXPECT_EQ(Run(in_lines(2, 77)), Images{});
  EXPECT_EQ(results_.at({2, 0}).usage.cached_tokens, 8);
  EXPECT_EQ(Run(in_lines(3, 78)), Images{78});
  EXPECT_EQ(results_.at({3, 0}).usage.cached_tokens, 1);
}

TEST_F(EngineImagesTest, ARowEndsBeforeAnImageThatTheStepHasNoRoomFor) {
  Start();
  Submit(Ask(1, 1, 77, 5, 1));
  Submit(Ask(2, 3, 78, 5, 1));
  RunAll();
  // 77 leaves no room to encode 78, and a request is not admitted unless the step can use its
  // image.
  ASSERT_GE(executor_.steps.size(), 2u);
  EXPECT_EQ(executor_.steps[0].rows.size(), 1u);
  EXPECT_EQ(executor_.steps[1].encode[0].id, 78u);
}

TEST_F(EngineImagesTest, ARowEndsBeforeItsSecondImageIfBothDoNotFit) {
  Start();
  Arrival arrival = Ask(1, 1, 77, 5, 1);
  arrival.prompt.insert(arrival.prompt.end(), 4, kPlaceholder);
  arrival.images.push_back(MakeImage(7, 78, 4));
  EXPECT_EQ(Run(std::move(arrival)), (Images{77, 78}));
  ASSERT_EQ(executor_.steps.size(), 2u);
  EXPECT_EQ(executor_.steps[0].rows[0].num_tokens, 7);
  EXPECT_EQ(executor_.steps[1].rows[0].num_tokens, 4);
}

TEST_F(EngineImagesTest, ChunksMayCutThroughAnImage) {
  executor_.limits_.max_encoder_rows = executor_.limits_.max_step_image_rows = 24;
  Start();
  EXPECT_EQ(Run(Ask(1, 6, 77, 24, 4)), Images{77});
  ASSERT_EQ(executor_.steps.size(), 3u);  // of 16 tokens at most
  EXPECT_EQ(executor_.steps[0].rows[0].num_tokens, 16);
  EXPECT_EQ(executor_.steps[1].rows[0].num_tokens, 16);
}

// A row takes all of an image whose positions see each other, or ends before it.
TEST_F(EngineImagesTest, NoRowEndsInAWholeImage) {
  executor_.limits_.max_encoder_rows = executor_.limits_.max_step_image_rows = 24;
  executor_.limits_.whole_image_rows = 8;
  Start();
  Arrival arrival = Ask(1, 11, 77, 6, 2);
  arrival.prompt.insert(arrival.prompt.end(), 8, kPlaceholder);
  arrival.prompt.push_back(3);
  arrival.images.push_back(MakeImage(19, 78, 8));
  EXPECT_EQ(Run(std::move(arrival)), (Images{77, 78}));
  std::vector<int32_t> rows;  // of 16 tokens at most
  for (const StepInput& step : executor_.steps) rows.push_back(step.rows[0].num_tokens);
  EXPECT_EQ(rows, (std::vector<int32_t>{11, 16, 1}));
}

// Whatever the target allows, the first prefill of a step takes a whole image.
TEST_F(EngineImagesTest, StreamsWaitForAWholeImage) {
  executor_.limits_.max_encoder_rows = executor_.limits_.max_step_image_rows = 24;
  executor_.limits_.whole_image_rows = 8;
  executor_.on_wait = [this] { clock_.Advance(std::chrono::milliseconds(20)); };
  EngineCoreOptions options;
  options.target_itl_ms = 5;
  Start(options);
  Submit(Make(1, {60, 61, 62}, 30));
  for (int i = 0; i < 8; ++i) core_->Step();
  const size_t first = executor_.steps.size();
  Submit(Ask(2, 0, 77, 8, 2));
  for (int i = 0; i < 8; ++i) core_->Step();
  int32_t longest = 0;
  for (size_t i = first; i < executor_.steps.size(); ++i) {
    for (const StepRow& row : executor_.steps[i].rows) {
      longest = std::max(longest, row.num_tokens);
    }
  }
  EXPECT_EQ(longest, 8);
  RunAll();
}

// A prefix hit may end within the image: its cached keys have seen all of it.
TEST_F(EngineImagesTest, TheRestOfAWholeImageIsComputedTogether) {
  executor_.limits_.whole_image_rows = 8;
  Start();
  EXPECT_EQ(Run(Ask(1, 2, 77, 8, 2)), Images{77});
  const size_t first = executor_.steps.size();
  Arrival second = Ask(2, 2, 77, 8, 0);
  EXPECT_EQ(Run(std::move(second)), Images{});
  ASSERT_EQ(executor_.steps.size(), first + 1);
  EXPECT_EQ(executor_.steps[first].admit[0].num_computed, 9);
  EXPECT_EQ(executor_.steps[first].rows[0].num_tokens, 1);
}

TEST_F(EngineImagesTest, RefusesWholeImagesThatDoNotFit) {
  executor_.limits_.max_encoder_rows = executor_.limits_.max_step_image_rows = 24;
  executor_.limits_.whole_image_rows = 6;
  Start();
  EXPECT_EQ(core_->Check(Ask(1, 2, 77, 7, 1)).message(),
            "images[0]: has 7 rows, but the engine can encode at most 6");
  Arrival part = Ask(1, 2, 77, 6, 1);
  EXPECT_TRUE(core_->Check(part).ok());
  part.images[0].span.num_rows = 5;
  EXPECT_EQ(core_->Check(part).message(),
            "images[0]: shows 5 of 6 rows, but all must be in the prompt");
  executor_.limits_.whole_image_rows = 9;
  EngineCoreOptions options;
  options.max_seqs = 4;
  options.max_step_tokens = 16;
  const auto core = EngineCore::Create(options, &clock_, &executor_, nullptr);
  EXPECT_EQ(core.status().message(),
            "max_step_tokens: must be at least 18, twice the 9 tokens of an image, which a step "
            "computes together; got 16");
}

// Windows drop blocks behind a row, not those that a whole image needs together.
TEST_F(EngineImagesTest, RefusesImagesThatWindowsHaveNoBlocksFor) {
  executor_.limits_.whole_image_rows = 8;
  executor_.limits_.cache.groups = {{CacheGroupKind::kWindow, 4, 4}};
  executor_.limits_.cache.num_device_blocks = 3;
  Start();
  EXPECT_TRUE(core_->Check(Ask(1, 30, 77, 4, 1)).ok());
  EXPECT_EQ(
      core_->Check(Ask(1, 12, 77, 8, 10)).message(),
      "max_tokens: a prompt of 30 tokens and up to 1 more need 4 KV blocks of 4 positions, but "
      "there are 3; ask for fewer tokens, or give the KV cache more memory");
}

TEST(SchedulerOptions, PrefillsKeepTheTokensOfAWholeImage) {
  SchedulerOptions options;
  options.max_step_tokens = 20;
  options.min_chunk = 4;
  EXPECT_EQ(options.min_prefill(), 4);
  options.whole_image_rows = 8;
  EXPECT_EQ(options.min_prefill(), 8);
  options.max_step_tokens = 6;
  options.whole_image_rows = 0;
  EXPECT_EQ(options.min_prefill(), 3);
}

// With --target-itl-ms a step encodes no second image, and none behind a whole chunk of text.
TEST_F(EngineImagesTest, StreamsWaitForOneImageAtATime) {
  executor_.limits_.max_encoder_rows = executor_.limits_.max_step_image_rows = 24;
  executor_.on_wait = [this] {
    int32_t rows = 0;
    for (const EncodeImage& image : executor_.steps.back().encode) rows += image.num_rows;
    clock_.Advance(std::chrono::milliseconds(1 + 10 * rows));
  };
  EngineCoreOptions options;
  options.target_itl_ms = 5;
  Start(options);
  Submit(Make(1, {60, 61, 62}, 30));
  for (int i = 0; i < 5; ++i) core_->Step();
  Submit(Ask(2, 0, 77, 6, 2));  // shows what an image takes
  for (int i = 0; i < 5; ++i) core_->Step();
  const size_t first = executor_.steps.size();
  Submit(Ask(3, 5, 78, 6, 2));
  Submit(Ask(4, 0, 79, 6, 2));
  RunAll();
  for (size_t i = first; i < executor_.steps.size(); ++i) {
    EXPECT_LE(executor_.steps[i].encode.size(), 1u) << "step " << i;
  }
  EXPECT_EQ(Encoded(first), (Images{79, 78}));
  EXPECT_EQ(executor_.steps[first].rows[1].num_tokens, 5);  // the text before the image
}

TEST_F(EngineImagesTest, APreemptedSequenceNeedsItsImageAgain) {
  executor_.limits_.max_encoder_rows = executor_.limits_.max_step_image_rows = 24;
  EngineCoreOptions options;
  options.prefix_cache = false;
  Start(options);
  Submit(Ask(1, 6, 77, 24, 4));
  core_->Step();
  core_->Pause(1);  // in the middle of the image
  Submit(Ask(2, 0, 78, 16, 1));
  for (int i = 0; i < 5; ++i) core_->Step();
  core_->Resume(1);
  RunAll();
  EXPECT_EQ(Encoded(), (Images{77, 78, 77}));
  EXPECT_EQ(executor_.steps.back().forget, Images{});
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kLength);
  EXPECT_EQ(Stats().images_encoded, 3);
}

TEST_F(EngineImagesTest, AResetForgetsAllImages) {
  Start();
  EXPECT_EQ(Run(Ask(1, 0, 77, 6, 1)), Images{77});
  executor_.fail_submits = 1;
  Submit(Ask(2, 1, 77, 6, 1));
  RunAll();
  EXPECT_EQ(results_.at({2, 0}).reason, FinishReason::kError);
  EXPECT_EQ(Run(Ask(3, 0, 77, 6, 1)), Images{77});
}

TEST_F(EngineImagesTest, AllChoicesUseTheImage) {
  Start();
  Arrival arrival =
      Ask(1, 2, 77, 6, 0);  // ends with the image, so each choice computes its last row
  arrival.sampling.n = 3;
  const std::vector<TokenId> prompt = arrival.prompt;
  EXPECT_EQ(Run(std::move(arrival)), Images{77});
  for (int32_t choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(results_.at({1, choice}).tokens, Continue(prompt, 1));
  }
}

TEST_F(EngineImagesTest, RefusesWhatItCannotEncode) {
  Start();
  const auto refused = [&](const std::function<void(Arrival*)>& change) {
    Arrival arrival = Ask(1, 2, 77, 6, 1);
    change(&arrival);
    return std::string(core_->Check(arrival).message());
  };
  using A = Arrival;
  EXPECT_EQ(refused([](A*) {}), "");
  EXPECT_EQ(refused([](A* a) { a->images[0] = MakeImage(0, 77, 9); }),
            "images[0]: has 9 rows, but the engine can encode at most 8");
  EXPECT_EQ(refused([](A* a) { a->images[0].image = nullptr; }), "images[0]: there is no image 77");
  EXPECT_EQ(refused([](A* a) { a->images[0].span.image = 78; }), "images[0]: there is no image 78");
  EXPECT_EQ(refused([](A* a) { a->images[0].span.first_row = 1; }),
            "images[0]: shows 6 rows from row 1 on, but has 6");
  EXPECT_EQ(refused([](A* a) { a->images[0].span.grid_width = 3; }), "");
  EXPECT_EQ(refused([](A* a) { a->images[0].span.grid_width = 4; }),
            "images[0]: 6 of 6 rows are no grid 4 wide");
  EXPECT_EQ(refused([](A* a) { a->images[0].span.num_rows = 0; }),
            "images[0]: shows 0 rows from row 0 on, but has 6");
  EXPECT_EQ(refused([](A* a) { a->images[0].span.position = 4; }),
            "images[0]: 6 rows from position 4 on overlap another image or exceed the prompt of 9 "
            "tokens");
  EXPECT_EQ(refused([](A* a) { a->images.push_back(MakeImage(7, 78, 2)); }),
            "images[1]: 2 rows from position 7 on overlap another image or exceed the prompt of 9 "
            "tokens");
  executor_.limits_.max_encoder_rows = 0;
  Start();
  EXPECT_EQ(refused([](A*) {}), "images: the model takes no images, got 1");
}

// A draft is a token, so what follows a match up to an image is all that can be proposed.
TEST(TextDrafter, ProposesNoRowsOfImages) {
  TextDrafter drafter({.most = 4, .min_match = 2, .max_match = 3});
  MatchAcceptance all(100);
  const ContentId image = ImageContent(77, 0);
  const std::vector<ContentId> text = {1, 2, 3, image, ImageContent(77, 1), 4, 1, 2};
  drafter.Follow(text, 100, &all);
  EXPECT_EQ(drafter.Propose(text, 4), std::vector<TokenId>{3});
  EXPECT_NE(image, ImageContent(77, 1));
  EXPECT_NE(image, ImageContent(78, 0));
  EXPECT_TRUE(ShowsImage(image));
}

}  // namespace
}  // namespace tokamak
