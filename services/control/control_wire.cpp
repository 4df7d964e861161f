// Encoding and strict decoding (control_wire.hpp).
#include "control/control_wire.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>
#include <sstream>

TENON_ABI_BEGIN

namespace {

constexpr std::uint8_t kMagic = 0xC7;
constexpr std::uint8_t kVersion = 1;

void put(std::uint8_t* to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint64_t get(const std::uint8_t* from, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= std::uint64_t{from[i]} << (8 * i);
  return value;
}

}  // namespace

std::string_view control_lane_name(ControlLane lane) noexcept {
  switch (lane) {
    case ControlLane::kTraining:
      return "an agreement at a slot boundary";
    case ControlLane::kSaving:
      return "a save";
    case ControlLane::kEnds:
      return "the start or the end of the run";
    case ControlLane::kWorld:
      return "the rendezvous of all processes";
  }
  return "an unknown conversation";
}

// magic, version, type, lane | rank (4) | id (4) | text bytes (4) | value (8)
ControlHeader encode_header(const ControlRecord& record) {
  if (record.text.size() > kControlTextBytes) {
    fail_run(fmt::format("control plane: a text of {} bytes, at most {} are sent", record.text.size(),
                         kControlTextBytes));
  }
  ControlHeader header{kMagic, kVersion, static_cast<std::uint8_t>(record.type), record.lane};
  put(&header[4], static_cast<std::uint32_t>(record.rank), 4);
  put(&header[8], record.id, 4);
  put(&header[12], record.text.size(), 4);
  put(&header[16], static_cast<std::uint64_t>(record.value), 8);
  return header;
}

ControlRecord decode_header(std::span<const std::uint8_t, kControlRecordBytes> bytes,
                            std::uint32_t& text_bytes) {
  if (bytes[0] != kMagic || bytes[1] != kVersion) {
    fail_run(
        fmt::format("control plane: expected a record of version {}, found bytes {:02x} {:02x}; is "
                    "another program, or another version of this one, talking to this port?",
                    kVersion, bytes[0], bytes[1]));
  }
  if (bytes[2] < static_cast<std::uint8_t>(ControlType::kHello) ||
      bytes[2] > static_cast<std::uint8_t>(ControlType::kAsked)) {
    fail_run(fmt::format("control plane: unknown record type {}", bytes[2]));
  }
  ControlRecord record;
  record.type = static_cast<ControlType>(bytes[2]);
  record.lane = bytes[3];
  record.rank = static_cast<int>(static_cast<std::int32_t>(get(&bytes[4], 4)));
  record.id = static_cast<std::uint32_t>(get(&bytes[8], 4));
  record.value = static_cast<std::int64_t>(get(&bytes[16], 8));
  text_bytes = static_cast<std::uint32_t>(get(&bytes[12], 4));
  if (text_bytes > kControlTextBytes) {
    fail_run(fmt::format("control plane: a record announces a text of {} bytes, at most {} are accepted",
                         text_bytes, kControlTextBytes));
  }
  return record;
}

ControlRecord continuation_record(int rank, const Continuation& next) {
  const std::string text = fmt::format("{}\n{}\n{}\n", next.control, next.token, next.resume ? "resume" : "");
  return {ControlType::kGoOn, 0, rank, 0, next.generation, text};
}

Continuation read_continuation(const ControlRecord& record) {
  Continuation next;
  next.generation = static_cast<int>(record.value);
  std::istringstream lines(record.text);
  std::string resume;
  std::getline(lines, next.control);
  std::getline(lines, next.token);
  std::getline(lines, resume);
  next.resume = resume == "resume";
  return next;
}

std::string join_texts(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) {
    if (text.size() > std::numeric_limits<std::uint32_t>::max())
      fail_run(fmt::format("a text of {} bytes cannot be joined to others, 4 GiB is too many", text.size()));
    std::uint8_t length[4];
    put(length, text.size(), 4);
    joined.append(reinterpret_cast<const char*>(length), 4).append(text);
  }
  return joined;
}

std::vector<std::string> split_texts(std::string_view joined) {
  std::vector<std::string> texts;
  while (!joined.empty()) {
    if (joined.size() < 4) fail_run("control plane: texts end inside a length");
    const std::uint64_t length = get(reinterpret_cast<const std::uint8_t*>(joined.data()), 4);
    joined.remove_prefix(4);
    if (length > joined.size()) {
      fail_run(fmt::format("control plane: a text of {} bytes, but only {} are left", length, joined.size()));
    }
    texts.emplace_back(joined.substr(0, length));
    joined.remove_prefix(length);
  }
  return texts;
}

ControlEndpoint control_endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  const int port = colon == std::string::npos ? 0 : std::atoi(text.c_str() + colon + 1);
  if (port < 1 || port > 65535) {
    fail_config(fmt::format("control plane: '{}' is not HOST:PORT, e.g. 10.0.0.1:29500", text));
  }
  return {text.substr(0, colon), static_cast<std::uint16_t>(port)};
}

std::string random_control_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

TENON_ABI_END
