#include "rpc/worker_messages.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "rpc/worker_fields.h"

namespace tokamak {
namespace {

using codec::Encoder;
using codec::StepDecoder;

// A message is the index of its type, then its fields.
template <typename Message>
std::string EncodeMessage(const Message& message) {
  std::string bytes;
  Encoder encoder(&bytes);
  encoder.Unsigned(message.index());
  // An Encoder changes no field (step_codec.cc).
  std::visit(
      [&](const auto& v) {
        codec::MessageFields(encoder, const_cast<std::remove_cvref_t<decltype(v)>&>(v));
      },
      message);
  return bytes;
}

template <typename Message, size_t... kIndex>
void DecodeFields(StepDecoder& decoder, size_t index, Message& message,
                  std::index_sequence<kIndex...>) {
  const auto read = [&]<size_t kType>() {
    codec::MessageFields(decoder, message.template emplace<kType>());
  };
  ((kIndex == index ? read.template operator()<kIndex>() : void()), ...);
}

template <typename Message>
Result<Message> DecodeMessage(const char* from, std::string_view bytes,
                              const ExecutorLimits& limits) {
  constexpr size_t kTypes = std::variant_size_v<Message>;
  StepDecoder decoder(bytes, limits);
  uint64_t index = 0;
  codec::Field(decoder, index, codec::Below{kTypes});
  Message message;
  DecodeFields(decoder, index, message, std::make_index_sequence<kTypes>());
  if constexpr (std::is_same_v<Message, ToDriver>) {
    const Hello* const hello = std::get_if<Hello>(&message);
    if (hello != nullptr && decoder.ok() && !hello->has_known_version()) return message;
  }
  if (Status status = decoder.Finish(); !status.ok()) return status.WithContext(from);
  return message;
}

}  // namespace

std::string EncodeToWorker(const ToWorker& message) { return EncodeMessage(message); }
std::string EncodeToDriver(const ToDriver& message) { return EncodeMessage(message); }

Result<ToWorker> DecodeToWorker(std::string_view bytes, const ExecutorLimits& limits) {
  return DecodeMessage<ToWorker>("message to a worker", bytes, limits);
}
Result<ToDriver> DecodeToDriver(std::string_view bytes, const ExecutorLimits& limits) {
  return DecodeMessage<ToDriver>("message to a driver", bytes, limits);
}

std::string_view Describe(const ToDriver& message) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"a greeting", "news of loading", "the end of loading", "its limits", "a step's output",
       "the end of its steps", "an error", "what it measures", "its device's free memory"});
  static_assert(kNames.size() == std::variant_size_v<ToDriver>);
  return kNames[message.index()];
}

}  // namespace tokamak
