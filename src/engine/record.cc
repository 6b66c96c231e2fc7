#include "engine/record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/record_codec.h"

namespace tokamak {
namespace {

constexpr std::string_view kMagic = "tokamakR";
constexpr size_t kChecksumBytes = 4;
constexpr size_t kFlushBytes = 1 << 16;

// A kind's number is its index in the variant.
template <size_t I = 0>
RecordEvent MakeEvent(size_t kind) {
  if constexpr (I < std::variant_size_v<RecordEvent>) {
    return kind == I ? RecordEvent(std::in_place_index<I>) : MakeEvent<I + 1>(kind);
  } else {
    return RecordEvent(std::in_place_index<0>);
  }
}

// `event` is mutable because the codec handles both directions; encoding does not change it.
void AppendFrame(RecordEvent& event, std::string* out) {
  std::string payload;
  codec::Encoder encoder(&payload);
  encoder.Unsigned(event.index());
  std::visit([&](auto& fields) { codec::Field(encoder, fields); }, event);
  codec::Encoder frame(out);
  frame.Unsigned(payload.size());
  *out += payload;
  const uint64_t checksum = Hash64(payload.data(), payload.size());
  frame.Bytes(&checksum, kChecksumBytes);
}

}  // namespace

uint64_t Digest(const StepInput& step) {
  const std::string bytes = Encode(step);
  return Hash64(bytes.data(), bytes.size());
}

// Writing.

Result<std::unique_ptr<RecordWriter>> RecordWriter::Create(const std::string& path,
                                                           const RecordHeader& header) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    return Unavailable("{}: cannot write the record: {}", path, std::strerror(errno));
  }
  std::unique_ptr<RecordWriter> writer(new RecordWriter(path, fd));
  writer->buffer_ = kMagic;
  RecordHeader kept = header;
  kept.options.on_request_done = nullptr;
  writer->Write(std::move(kept));
  RETURN_IF_ERROR(writer->Flush());
  return writer;
}

RecordWriter::~RecordWriter() {
  (void)Flush();
  if (fd_ >= 0) ::close(fd_);
}

void RecordWriter::Write(const RecordEvent& event) {
  if (fd_ < 0) return;
  AppendFrame(const_cast<RecordEvent&>(event), &buffer_);
  if (buffer_.size() >= kFlushBytes) (void)Flush();
}

void RecordWriter::WriteArrival(const Arrival& arrival) {
  ArrivalEvent event;
  event.arrival.id = arrival.id;
  event.arrival.prompt = arrival.prompt;
  event.arrival.sampling = arrival.sampling;
  event.arrival.eos_ids = arrival.eos_ids;
  event.arrival.priority = arrival.priority;
  event.arrival.client = arrival.client;
  event.arrival.cache_root = arrival.cache_root;
  event.arrival.images = arrival.images;
  event.arrival.speculate = arrival.speculate;
  event.has_decoders = !arrival.decoders.empty();
  Write(std::move(event));
}

Status RecordWriter::Flush() {
  size_t written = 0;
  while (fd_ >= 0 && written < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + written, buffer_.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Status error = Unavailable("{}: writing the record failed, so it ends here: {}", path_,
                                 std::strerror(errno));
      LogError("{}", error.message());
      ::close(fd_);
      fd_ = -1;
      buffer_.clear();
      return error;
    }
    written += static_cast<size_t>(n);
  }
  buffer_.clear();
  return Status();
}

// Reading.

Result<RecordReader> RecordReader::Open(std::string name, std::string_view bytes) {
  RecordReader reader(std::move(name), bytes);
  if (!bytes.starts_with(kMagic)) {
    return DataLoss("{}: is not a tokamak record (it does not start with \"{}\")", reader.name_,
                    kMagic);
  }
  reader.offset_ = kMagic.size();
  ASSIGN_OR_RETURN(std::optional<RecordEvent> first, reader.Next());
  if (!first || !std::holds_alternative<RecordHeader>(*first)) {
    return DataLoss("{}: the record has no header", reader.name_);
  }
  reader.header_ = std::get<RecordHeader>(std::move(*first));
  return reader;
}

Result<std::optional<RecordEvent>> RecordReader::Next() {
  if (offset_ == bytes_.size()) return std::optional<RecordEvent>();
  const auto malformed = [this](std::string_view what) {
    return DataLoss("{}: byte {}: {}", name_, offset_, what);
  };
  size_t at = offset_;
  uint64_t size = 0;
  for (int shift = 0;; shift += 7) {
    if (at == bytes_.size()) return malformed("the last event is cut off");
    const auto byte = static_cast<uint8_t>(bytes_[at++]);
    size |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
    if (shift == 35) return malformed("an event is longer than possible");
  }
  if (size > bytes_.size() - at || bytes_.size() - at - size < kChecksumBytes) {
    return malformed("the last event is cut off");
  }
  const std::string_view payload = bytes_.substr(at, size);
  const uint64_t checksum = Hash64(payload.data(), payload.size());
  if (std::memcmp(&checksum, bytes_.data() + at + size, kChecksumBytes) != 0) {
    return malformed("an event is corrupted (its checksum differs)");
  }
  codec::Decoder decoder(payload);
  const uint64_t kind = decoder.Unsigned();
  if (!decoder.ok() || kind >= std::variant_size_v<RecordEvent>) {
    return malformed("an event has an unknown kind");
  }
  RecordEvent event = MakeEvent(kind);
  std::visit([&](auto& fields) { codec::Field(decoder, fields); }, event);
  if (const auto* header = std::get_if<RecordHeader>(&event);
      header != nullptr && !header->has_known_version()) {
    return Unimplemented(
        "{}: has record version {} and step version {}, but this build reads only {} and {}", name_,
        header->version, header->step_version, kRecordVersion, kStepVersion);
  }
  if (const Status status = decoder.Finish(); !status.ok()) {
    return malformed(fmt::format("the event is malformed: {}", status.message()));
  }
  offset_ = at + size + kChecksumBytes;
  return std::optional<RecordEvent>(std::move(event));
}

// Recording.

TimePoint RecordingClock::Now() {
  const TimePoint now = inner_->Now();
  writer_->Write(ClockEvent{now.time_since_epoch().count()});
  return now;
}

Status RecordingExecutor::Submit(StepInput step) {
  SubmitEvent event;
  event.number = step.number;
  event.num_rows = static_cast<int32_t>(step.rows.size());
  event.digest = Digest(step);
  event.status = inner_->Submit(std::move(step));
  writer_->Write(event);
  return event.status;
}

Status RecordingExecutor::Sample(uint64_t number) {
  Status status = inner_->Sample(number);
  writer_->Write(SampleEvent{status});
  return status;
}

Status RecordingExecutor::SampleMasked(uint64_t number, std::vector<TokenMask> masks) {
  Status status = inner_->SampleMasked(number, std::move(masks));
  writer_->Write(SampleEvent{status});
  return status;
}

bool RecordingExecutor::Done(uint64_t number) {
  const bool done = inner_->Done(number);
  writer_->Write(DoneEvent{done});
  return done;
}

Result<StepOutput> RecordingExecutor::Wait(uint64_t number) {
  Result<StepOutput> output = inner_->Wait(number);
  WaitEvent event{output.status(), output.ok() ? *output : StepOutput{}};
  event.output.expert_loads.clear();  // statistics, many for each token
  writer_->Write(event);
  return output;
}

Status RecordingExecutor::Reset() {
  Status status = inner_->Reset();
  writer_->Write(ResetEvent{status});
  return status;
}

}  // namespace tokamak
