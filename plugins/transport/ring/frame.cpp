// Headers of frames as bytes (transport.hpp). The reader accepts arbitrary bytes.
#include <tenon/ring/transport.hpp>

#include <fmt/format.h>

TENON_ABI_BEGIN

namespace {

constexpr std::uint32_t kMagic = 0x31464e54;  // "TNF1"

template <typename T>
void put(std::byte*& to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    *to++ = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
}

template <typename T>
T take(const std::byte*& from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(*from++) << (8 * i);
  return static_cast<T>(value);
}

// FNV-1a: detects a misaligned stream at the next header.
std::uint32_t check_sum(std::span<const std::byte> bytes) {
  std::uint32_t sum = 2166136261U;
  for (const std::byte byte : bytes) sum = (sum ^ std::to_integer<std::uint32_t>(byte)) * 16777619U;
  return sum;
}

constexpr std::size_t kChecked = kFrameHeaderBytes - sizeof(std::uint32_t);

}  // namespace

FramePort::Events::~Events() = default;
FramePort::~FramePort() = default;

FrameHeaderBytes write_frame_header(const FrameHeader& header) noexcept {
  FrameHeaderBytes bytes{};
  std::byte* to = bytes.data();
  put(to, kMagic);
  put(to, static_cast<std::uint32_t>(header.kind));
  put(to, header.epoch);
  put(to, header.index);
  put(to, header.group);
  put(to, header.number);
  put(to, header.offset);
  put(to, header.bytes);
  put(to, check_sum(std::span(bytes).first(kChecked)));
  return bytes;
}

std::string read_frame_header(const FrameHeaderBytes& bytes, FrameHeader& header) {
  const std::byte* from = bytes.data();
  const auto magic = take<std::uint32_t>(from);
  const auto kind = take<std::uint32_t>(from);
  header.epoch = take<std::uint32_t>(from);
  header.index = take<std::uint32_t>(from);
  header.group = take<std::uint64_t>(from);
  header.number = take<std::uint64_t>(from);
  header.offset = take<std::uint64_t>(from);
  header.bytes = take<std::uint32_t>(from);
  const auto sum = take<std::uint32_t>(from);
  if (magic != kMagic) return fmt::format("a frame begins with {:#010x}, expected {:#010x}", magic, kMagic);
  if (sum != check_sum(std::span(bytes).first(kChecked)))
    return "a frame's header does not fit its check sum";
  if (kind < static_cast<std::uint32_t>(FrameKind::kOpen) ||
      kind > static_cast<std::uint32_t>(FrameKind::kBye))
    return fmt::format("a frame of unknown kind {}", kind);
  header.kind = static_cast<FrameKind>(kind);
  const bool data = header.kind == FrameKind::kData || header.kind == FrameKind::kMessage;
  const std::uint32_t most = data ? kFrameDataBytes : kFrameControlBytes;
  if (header.bytes > most)
    return fmt::format("a frame of kind {} with {} bytes, expected at most {}", kind, header.bytes, most);
  if (header.offset > (std::uint64_t{1} << 62))
    return fmt::format("a frame at byte {} of its message", header.offset);
  if (!data && header.offset != 0) return fmt::format("a frame of kind {} with an offset", kind);
  return "";
}

TENON_ABI_END
