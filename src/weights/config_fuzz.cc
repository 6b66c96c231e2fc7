// Parses bytes as config.json and reads them as a family would.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weights/checkpoint.h"
#include "weights/config_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tokamak;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Result<JsonValue> config = ParseConfigJson(text, "config.json");
  if (!config.ok()) return 0;
  (void)config->ToString(100);
  ConfigReader reader(*config, "config.json");
  reader.Int("hidden_size");
  reader.IntOr("num_key_value_heads", 1);
  reader.Number("rope_theta");
  reader.NumberOr("rms_norm_eps", 1e-6);
  reader.Bool("tie_word_embeddings");
  reader.Ints("sizes");
  reader.Numbers("factors");
  reader.Strings("layer_types");
  reader.ExpectOrAbsent("hidden_act", "silu");
  if (reader.Has("rope_scaling")) {
    ConfigReader scaling = reader.Object("rope_scaling");
    scaling.String("rope_type");
    scaling.NumberOr("factor", 1);
  }
  (void)reader.Finish();
  Result<Checkpoint> dummy = MakeDummyCheckpoint(*std::move(config), "config.json");
  if (dummy.ok()) (void)dummy->tensors->Find("model.norm.weight", Shape{4});
  return 0;
}
