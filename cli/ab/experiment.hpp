// The plan of an A/B experiment, fixed before the first run: arms, seeds, metric, budget and the rule of
// decision. Plain data; `read_experiment` fills it from TOML (DESIGN 5), `validate` refuses what cannot be
// answered.
#pragma once

#include "ab/axis.hpp"
#include "ab/factor_rule.hpp"
#include "ab/ladder.hpp"
#include "ab/ledger.hpp"
#include "ab/sequential.hpp"
#include "ab/tune_rule.hpp"
#include "config/run_schema.hpp"

#include <tenon/options.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::ab {

struct Arm {
  std::string name;                       ///< letters, digits, '.', '_' and '-': it names a folder
  std::vector<std::string> extends = {};  ///< configuration files laid over the base, in order; absolute
  std::vector<std::string> set = {};      ///< "a.b=c", as on the command line
  bool own_order =
      false;  ///< A/A: order and rounding streams differ from the pair's seed, initial weights do not
  std::int64_t steps = 0;  ///< run.steps of this arm alone, in place of the budget's; 0 = the budget's
};

enum class DecideBy { kFinalValue, kTimeToTarget };
enum class DecidingTest { kStudentT, kSignFlip };
inline constexpr auto kDecideBy =
    option::choice<DecideBy>({{"final", DecideBy::kFinalValue}, {"time_to_target", DecideBy::kTimeToTarget}});
inline constexpr auto kTests =
    option::choice<DecidingTest>({{"t", DecidingTest::kStudentT}, {"sign_flip", DecidingTest::kSignFlip}});

/// The place of a study in a family of questions (family.hpp).
struct FamilyShare {
  std::string ledger;           ///< the ledger's folder, absolute
  std::string family;           ///< as LedgerBook::family
  std::size_t question = 0;     ///< from 1
  double alpha = 0;             ///< that the family shares out
  std::size_t discoveries = 0;  ///< answered before the question began
  LevelRule rule = LevelRule::kELond;
};

struct Experiment {
  std::string name;  ///< file name without extension
  std::string path;  ///< the file it was read from; "" if made in memory
  std::string question;
  std::string base;  ///< configuration that every arm extends; absolute
  std::vector<std::int64_t> seeds = {};
  Budget budget = {};
  std::vector<Arm> arms = {};  ///< the first is the baseline

  std::string metric = "val/loss";          ///< primary
  bool lower_is_better = true;              ///< of the primary metric
  std::vector<std::string> secondary = {};  ///< empty: every shared train/ and val/ metric
  std::optional<double> margin = {};        ///< equivalence margin, in units of the primary metric
  std::optional<double> target = {};        ///< value of the primary metric whose first crossing is timed
  DecideBy decide_by = DecideBy::kFinalValue;
  DecidingTest test =
      DecidingTest::kStudentT;  ///< which p-value decides on final values; both are always printed
  double alpha = 0.05;          ///< in a family the question's own level
  double power = 0.8;           ///< for the minimum detectable effect
  std::optional<SequentialRule> sequential = {};  ///< pairs are added until it stops; `seeds` are the most
  std::optional<TuneRule> tune = {};      ///< arms get the best of these settings before they are compared
  std::vector<Factor> factors = {};       ///< not empty: arm i is cell i of their full product
  std::optional<LadderRule> ladder = {};  ///< the experiment is made at several sizes
  std::optional<FamilyShare> family = {};
};

/// Throws Error(kConfig) with one line per problem: too few arms, duplicate or unusable names, duplicate
/// seeds, no budget, a margin or alpha out of range, time to target without target, a sequential rule that
/// its seeds or the rule of decision contradict.
void validate(const Experiment& experiment);

/// Letters, digits, '.', '_' and '-', at most 64, not starting with '.' or '-'.
bool usable_as_folder(const std::string& name);

/// False for accuracy, auc and rates, true otherwise. The name may carry a split: "val/accuracy".
bool lower_is_better(const std::string& metric);

/// The same experiment with a second copy of the first arm as the only other arm. The copy keeps the initial
/// weights of its pair and draws its own data order and rounding, so the differences are the noise of the
/// pipeline.
Experiment against_itself(const Experiment& experiment);

/// Reads an experiment file:
///   question, base, seeds, metric, lower_is_better, secondary, margin, target, decide_by = "final" |
///   "time_to_target", test = "t" | "sign_flip", alpha, [budget] with exactly one of steps, samples, tokens,
///   seconds, bytes,
///   [sequential] max_seeds, first_look, block, method = "sign" | "normal", futility; seeds may then be
///   { from = 1 },
///   [tune] trials, seeds, arms, on_failure, budget, and [[tune.key]] tables (tune_rule.hpp),
///   [ladder] points, held_out, samples_per_parameter, tokens_per_parameter (ladder.hpp),
///   [[arm]] name, extends, set = ["a.b=c"]; or [[factor]] tables (factor_rule.hpp), whose cells are the
///   arms.
/// Paths are relative to the file. Throws Error(kConfig); the result is validated.
Experiment read_experiment(const std::string& path, const std::vector<std::string>& sets);

/// Every table of such a file.
std::vector<config::TableSpecs> experiment_tables();

}  // namespace tenon::ab
