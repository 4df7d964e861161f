// Records of the control plane over TCP: 24 bytes and a text. Integers are little-endian.
#pragma once

#include "control/control_state.hpp"

#include <tenon/abi.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

enum class ControlType : std::uint8_t {
  kHello = 1,    ///< rank: the sender; value: ranks of its world + 2^32 trainers; text: token, version,
                 ///< deadline, one a line
  kWelcome,      ///< answer
  kRefused,      ///< answer; text: why
  kBeginSlot,    ///< value: slot
  kRequest,      ///< value: actions; text: reason
  kVote,         ///< value: slot; lane: 1 = yes
  kExchange,     ///< lane: which conversation; text
  kFail,         ///< value: exit status; text: message; lane: 1 = a wait ended at its deadline
  kBye,          ///< the rank leaves in good order
  kAnswer,       ///< value: actions, slot or verdict; text: texts of an exchange
  kError,        ///< answer; value: exit status; text: message
  kLate,         ///< answer; text: the late ranks
  kFailure,      ///< to all; value: exit status; text: the run's first failure
  kInterrupted,  ///< to all; text: the rank that died or was late. Ranks keep their state and say so
  kHeld,         ///< the rank has stopped and keeps its state
  kGoOn,         ///< to ranks that have; value: generation; text: control, token, "resume" or "", one a line
  kAsked,        ///< to all: a signal asked for an end, at a slot that they learn when they begin it
};

/// Conversations whose rounds are independent of each other: of the trainers, and kWorld of all ranks.
enum class ControlLane : std::uint8_t { kTraining, kSaving, kEnds, kWorld };
inline constexpr int kControlLanes = 4;
std::string_view control_lane_name(ControlLane lane) noexcept;

struct ControlRecord {
  ControlType type = ControlType::kHello;
  std::uint8_t lane = 0;
  int rank = 0;
  std::uint32_t id = 0;  ///< an answer has that of its question
  std::int64_t value = 0;
  std::string text;
};

/// Where a run goes on after some of its ranks have died: another server, which the dead ranks do not know.
struct Continuation {
  int generation = 0;   ///< counts from 1
  std::string control;  ///< "host:port"
  std::string token;
  bool resume = false;  ///< some slot had begun, so the run's folder exists
};

/// As a record's value and text.
ControlRecord continuation_record(int rank, const Continuation& next);
Continuation read_continuation(const ControlRecord& record);

using ControlHeader = std::array<std::uint8_t, kControlRecordBytes>;

/// Longest text that is accepted; resolved configurations and digests are far shorter.
inline constexpr std::uint32_t kControlTextBytes = 64u << 20;

/// Throws Error(kRun) if the text is too long.
ControlHeader encode_header(const ControlRecord& record);
/// All but the text, whose length is stored in `text_bytes`. Throws Error(kRun) on bytes that no encoder of
/// this version writes.
ControlRecord decode_header(std::span<const std::uint8_t, kControlRecordBytes> bytes,
                            std::uint32_t& text_bytes);

std::string join_texts(const std::vector<std::string>& texts);
/// Throws Error(kRun) unless `joined` is the work of join_texts.
std::vector<std::string> split_texts(std::string_view joined);

// Address of the control plane, and the token by which processes of one run recognise each other.

struct ControlEndpoint {
  std::string host;
  std::uint16_t port = 0;
};

/// Parses "HOST:PORT". Throws Error(kConfig) for anything else.
ControlEndpoint control_endpoint(const std::string& text);
/// 16 random hexadecimal digits.
std::string random_control_token();

TENON_ABI_END
