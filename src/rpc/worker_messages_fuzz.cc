// Decodes arbitrary bytes as messages of both directions: what is accepted must encode to the same
// bytes, and no allocation may be large for the input.
#include <string_view>

#include "base/check.h"
#include "rpc/worker_messages.h"
#include "step/testing/decoder_fuzz.h"

namespace tokamak {
namespace {

template <typename Message>
bool IsOfAnotherVersion(const Message& message) {
  if constexpr (std::is_same_v<Message, ToDriver>) {
    const Hello* const hello = std::get_if<Hello>(&message);
    return hello != nullptr && !hello->has_known_version();
  }
  return false;
}

template <typename Message>
void Test(std::string_view bytes,
          Result<Message> (*decode)(std::string_view, const ExecutorLimits&),
          std::string (*encode)(const Message&)) {
  const ExecutorLimits limits = FuzzLimits();
  const Result<Message> decoded =
      DecodeWithinMemory(bytes.size(), [&] { return decode(bytes, limits); });
  if (decoded.ok() && !IsOfAnotherVersion(*decoded)) CHECK(encode(*decoded) == bytes);
}

}  // namespace
}  // namespace tokamak

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tokamak::Test(bytes, &tokamak::DecodeToWorker, &tokamak::EncodeToWorker);
  tokamak::Test(bytes, &tokamak::DecodeToDriver, &tokamak::EncodeToDriver);
  return 0;
}
