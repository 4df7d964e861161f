// The ledger of a family of questions, DIR/ledger.jsonl, and the rule that gives each question its share of
// alpha. A file of lines that is only appended to: the rule, then for each question a line when it begins and
// one when it is answered. It knows nothing of runs; family.hpp brings studies and ledger together.
#pragma once

#include "ab/file_lock.hpp"
#include "base/file_descriptor.hpp"

#include <tenon/options.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::ab {

/// The share of question `index`, which counts from 1: 1 / sqrt(index) - 1 / sqrt(index + 1). The shares of
/// the first n add up to 1 - 1 / sqrt(n + 1), those of all questions to 1.
double share_of(std::size_t index);

/// Sum over x = 1 .. r of x nu(x), with the weights nu(x) = 1 / (x (x + 1)), which add up to 1: it replaces
/// the factor r where a p-value may depend on the discoveries before it in any way (Benjamini and Yekutieli
/// 2001; Blanchard and Roquain 2008).
double reshaped(std::size_t r);

/// e-LOND (Xu and Ramdas 2024): the level is alpha * share * (discoveries + 1). kReshaped: alpha * share *
/// reshaped(discoveries + 1).
enum class LevelRule { kELond, kReshaped };
inline constexpr auto kLevelRules =
    option::choice<LevelRule>({{"e-LOND", LevelRule::kELond}, {"reshaped", LevelRule::kReshaped}});

/// The level of question `index`, when so many earlier ones were discoveries as it began.
double level_of(double alpha, std::size_t index, std::size_t discoveries, LevelRule rule);

/// Seeds first .. last.
struct SeedRange {
  std::int64_t first = 0, last = 0;
  bool operator==(const SeedRange&) const = default;
};
/// In ascending order, each as long as can be.
std::vector<SeedRange> ranges_of(std::vector<std::int64_t> seeds);
/// "1 to 12, 20".
std::string ranges_text(const std::vector<SeedRange>& ranges);

/// What the ledger has to know of a study before its first run.
struct Inquiry {
  std::string question;                ///< in the words of the experiment; may be ""
  std::string experiment;              ///< name
  std::string file;                    ///< where it was read from; "" if made in memory
  std::string folder;                  ///< of the study, relative to the ledger's
  std::string digest;                  ///< of the plan (look_record.hpp)
  std::vector<SeedRange> seeds;        ///< that the verdict may use
  std::vector<SeedRange> tuning = {};  ///< that a tuning may use
  bool sequential = true;              ///< evidence by e-process; otherwise a p-value
};

/// The answer of an arm, or of a factor's effect. `e` is the e-value of a difference, `e_equivalent` the
/// lesser one of equivalence; `p` is adjusted for the number of arms.
struct ArmAnswer {
  std::string arm, outcome;
  std::optional<double> e = {}, e_equivalent = {}, p = {};
};

/// Whether the arm is better or worse, which makes its question a discovery.
bool claims_difference(const ArmAnswer& arm);

struct Answer {
  std::vector<ArmAnswer> arms;
  bool discovery = false;  ///< an arm is better or worse
  std::string time;
};

struct Question {
  std::size_t index = 0;  ///< from 1
  std::string id;         ///< "<index>-<begin of the digest>"
  Inquiry asked;
  LevelRule rule = LevelRule::kELond;
  std::size_t discoveries = 0;  ///< answered before this question began
  double level = 0;             ///< alpha_t
  std::string time;             ///< of its begin
  std::optional<Answer> answer = {};
};

/// The contents of a ledger.
struct LedgerBook {
  std::string family;  ///< 16 hexadecimal digits, by which studies know their family
  std::string created;
  double alpha = 0;
  std::vector<Question> questions;
  std::vector<std::pair<std::size_t, bool>> events = {};  ///< by line: question, and whether it is its answer
  std::string link = {};                                  ///< of the last line
  std::string unfinished = {};  ///< text after the last line end, which is no whole line
  bool unended = false;         ///< the last line is whole, but its end is missing

  std::size_t discoveries() const;
  /// The newest question of this folder and digest; null if there is none.
  const Question* find(const std::string& folder, const std::string& digest) const;
  /// The first question that may have used one of these seeds; null if there is none.
  const Question* user_of(const std::vector<SeedRange>& seeds) const;
  /// The question that would begin now.
  Question next(const Inquiry& asked) const;
};

/// Reads a ledger. Every line carries a digest of itself and of the line before, so that a line that is
/// missing, edited or inserted is found. Throws Error(kRun) that names `where` and the line, also for a
/// ledger of another version. An unfinished last line is no error; an empty text gives a book with alpha 0.
LedgerBook parse_ledger(std::string_view text, const std::string& where);
/// The same text from what was read; without the unfinished line.
std::string ledger_text(const LedgerBook& book);
/// `body`, which is a JSON object, as a line after one whose link is `previous`; "" begins a ledger.
std::string linked_line(const std::string& previous, std::string_view body);

/// The file, locked against other writers while the object lives, which should be short.
class Ledger {
 public:
  /// Begins a ledger with this alpha if there is none. An unfinished last line of a crash is taken off the
  /// file and kept in DIR/ledger.torn. Throws Error(kRun) if another process does not release the lock
  /// within `deadline_s`, and as parse_ledger; Error(kConfig) if the family has another alpha.
  Ledger(const std::string& folder, double alpha, double deadline_s = 10);

  const LedgerBook& book() const { return book_; }
  /// "" or what was repaired, in a sentence.
  const std::string& repaired() const { return repaired_; }

  /// Grants a level. The line is on the disk when it returns. The reference holds until the next call.
  const Question& begin(const Inquiry& asked);
  /// Answers an open question; sets answer.discovery and its time. Throws Error(kRun) if the question has an
  /// answer, or a verdict that its level does not carry.
  void answer(std::size_t index, Answer answer);

  static std::string path_of(const std::string& folder);

 private:
  void append(const std::string& body);

  std::string folder_, repaired_;
  FileLock lock_;
  base::FileDescriptor file_;
  LedgerBook book_;
};

/// The book of a ledger's folder, for reading; takes no lock. Throws Error(kConfig) if there is none.
LedgerBook read_ledger(const std::string& folder);

}  // namespace tenon::ab
