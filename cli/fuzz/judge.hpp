// Holds one composition to identities that need no oracle: a repetition, a resume, another transport or
// another order of keys must end with the same bits. One process judges one composition, so a crash or a
// hang of what it trains is the caller's finding. Nothing here knows a strategy.
#pragma once

#include "base/child_process.hpp"

#include <tenon/config.hpp>
#include <tenon/host.hpp>
#include <tenon/runtime.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::fuzz {

struct IdentityText {
  const char* name;
  const char* about;  ///< ends "a composition ..."
};
/// In the order of reports; "check" and "trains" are the first, and always held.
std::span<const IdentityText> all_identities();

/// The identities of composition `index` beside those two: one or two from each group that is due, in
/// rotation.
std::vector<std::string> identities_of(std::uint64_t seed, std::uint64_t index);

struct Finding {
  std::string identity;
  std::string text;                   ///< expected and found
  std::vector<std::string> commands;  ///< two, to see it, beside case.toml, other.toml and own.toml
  std::string other;                  ///< content of other.toml; "" = not needed
  std::string own = {};               ///< likewise of own.toml, where neither side is case.toml
};

/// Two failures are alike if these are equal: the identity and, of a run that ended, the words of its error
/// without numbers and paths.
std::string failure_kind(const Finding& finding);

struct Verdict {
  bool accepted = false;
  std::string refusal;                                        ///< of `check`, where it was not accepted
  std::vector<std::string> held;                              ///< identities
  std::vector<std::pair<std::string, std::string>> left_out;  ///< identity, why it does not apply
  std::optional<Finding> finding;                             ///< the first; the judgement ends with it
};

struct JudgeRequest {
  Value root;
  std::vector<std::string> identities;  ///< beside those two
  std::uint64_t seed = 1, index = 0;    ///< of drawn slots and phases
  std::string folder;                   ///< empty, and stays the caller's
  std::string program;                  ///< tenon
};

class Judge {
 public:
  /// `host`: of components that are made only to be asked.
  Judge(Runtime& runtime, Host& host, JudgeRequest request);
  Verdict run();

 private:
  struct Ending;
  struct Answer;
  using Identity = Answer (Judge::*)();
  static Identity identity_named(std::string_view name);

  Ending train(const Value& root, const std::string& name, bool resume = false);
  Ending launch(const std::string& transport, const std::string& name, bool resume);
  base::ChildResult run_program(std::vector<std::string> words,
                                std::vector<std::string> environment = {}) const;
  Ending read_ending(const std::string& name) const;
  std::string path(const std::string& name) const { return request_.folder + "/" + name; }
  Answer compare(const Ending& found, std::string_view what, const Value* other) const;
  Answer varied(const Value& root, const std::string& name, std::string_view what);
  Answer started_again(bool twice, bool by_signal);
  Answer over(const std::string& transport);
  bool follows_clock() const;
  bool rows_on_request() const;
  std::string inexact_resume(const std::string& name) const;
  bool keeps_its_device_by_defaults();

  Answer check();
  Answer trains();
  Answer repetition();
  Answer resolved();
  Answer order();
  Answer layers();
  Answer observers();
  Answer plugin_twice();
  Answer crash();
  Answer sigterm();
  Answer resume_twice();
  Answer socket();
  Answer openmpi();
  Answer mpich();
  Answer transport_resume();
  Answer clock();
  Answer block_order();
  Answer device();
  Answer stated();
  Answer memory();

  Runtime& runtime_;
  Host& host_;
  JudgeRequest request_;
  Config config_;
  std::vector<std::string> facts_;
  Verdict verdict_;
  RunResult whole_;  ///< the run that the others are compared with
};

}  // namespace tenon::fuzz
