#include "models/testing/images.h"

#include <utility>

#include "base/check.h"
#include "models/testing/harness.h"

namespace tokamak::testing {
namespace {

// Runs an encoder's tokens as those of a model, so that Harness can run it.
class EncoderModel final : public Model {
 public:
  EncoderModel(const ImageEncoder& encoder, Tensor patches) : encoder_(encoder), patches_(patches) {
    ModelSpec spec;
    spec.hidden_size = encoder.spec().row_size;
    spec.cache = encoder.spec().cache;
    set_spec(std::move(spec));
  }
  Tensor Forward(nn::Pass& pass) const override { return encoder_.Forward(pass, patches_); }

 private:
  const ImageEncoder& encoder_;
  const Tensor patches_;
};

std::vector<float> Download(Ops& ops, const Tensor& row) {
  std::vector<float> values(static_cast<size_t>(row.shape.elements()));
  const std::unique_ptr<Stream> stream = ops.MakeStream();
  ops.CopyToHost(values.data(), row.data, values.size() * sizeof(float), *stream);
  CHECK(ops.Synchronize(*stream).ok());
  return values;
}

}  // namespace

std::vector<float> PixelValues(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (size_t n = 0; n < count; ++n) {
    uint32_t i = static_cast<uint32_t>(n) + seed * 1000003U;
    i = (i ^ (i >> 16)) * 0x7FEB352DU;
    i = (i ^ (i >> 15)) * 0x846CA68BU;
    i ^= i >> 16;
    values[n] = static_cast<float>(i >> 8) * 0x1p-22f - 2.0f;
  }
  return values;
}

ImageRows EncodeImage(const ImageEncoder& encoder, Ops& ops, const ImageView& image,
                      DType kv_dtype) {
  const Result<ImageLayout> layout = encoder.Layout(image);
  CHECK_MSG(layout.ok(), layout.status().ToString());
  const auto num_tokens = static_cast<size_t>(layout->num_tokens());
  std::vector<float> patches(num_tokens * static_cast<size_t>(encoder.spec().patch_size));
  encoder.Unfold(image, patches);
  const Result<nn::OwnedTensor> uploaded =
      nn::Upload(ops, patches, {layout->num_tokens(), encoder.spec().patch_size});
  CHECK_MSG(uploaded.ok(), uploaded.status().ToString());
  const EncoderModel model(encoder, uploaded->tensor);
  Harness harness(model, ops,
                  {.kv_dtype = kv_dtype,
                   .hidden_states = true,
                   .window_lens = layout->window_lens,
                   .merged_tokens = encoder.spec().merged_tokens,
                   .rope_positions = layout->rope_positions,
                   .position_rows = layout->position_rows,
                   .position_weights = layout->position_weights});
  std::vector<Harness::Row> rows;
  for (const int32_t length : layout->sequence_lens) {
    // The ids mean nothing, and the harness counts positions as encoders do.
    const auto size = static_cast<size_t>(length);
    rows.push_back({harness.AddSequence(), std::vector<int32_t>(size), length});
  }
  const ImageRows states = harness.Forward(rows);
  ImageRows result;
  for (const int32_t token : layout->rows) {
    const auto state = static_cast<size_t>(token / encoder.spec().merged_tokens);
    result.push_back(token == ImageLayout::kNewline ? Download(ops, encoder.newline())
                                                    : states[state]);
  }
  return result;
}

HarnessOptions WithImages(HarnessOptions options, const Model& model, Ops& ops,
                          const TinyGolden& golden) {
  for (const GoldenImage& image : golden.images) {
    CHECK(model.image_encoder() != nullptr);
    const ImageEncoder& encoder = *model.image_encoder();
    for (auto& row : EncodeImage(encoder, ops, image.View(), options.kv_dtype)) {
      options.image_rows.push_back(std::move(row));
    }
    const Result<ImageLayout> layout = encoder.Layout(image.View());
    options.image_grids.push_back({layout->grid_height, layout->grid_width});
  }
  return options;
}

}  // namespace tokamak::testing
