// Proves that misspelt keys cannot pass: renames every key of a run by every single edit and looks at the
// answer. A tool for tests, over sample configurations here and over all shipped ones in tests/.
#pragma once

#include <tenon/config.hpp>

#include <set>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN
namespace config {

/// Words one edit away (delete, insert, replace, transpose neighbours; over a-z, 0-9, '_', '-'), each once,
/// without the empty word and the word itself; of them, one in `every`, from a place that the word chooses.
std::vector<std::string> one_edit_mutations(std::string_view word, std::size_t every = 1);

struct MutationReport {
  std::size_t keys = 0;
  std::size_t tried = 0;              ///< renamings to something that is no key of that table
  std::vector<std::string> accepted;  ///< "optimizer.lr -> lrr": must stay empty
  std::size_t long_keys = 0;          ///< keys of at least four letters
  std::vector<std::string>
      misguided;  ///< long keys for which some renaming got no or a wrong suggestion, with an example
};

/// Renames keys in `config` and runs check_run on the result. Keys of a [[model.override]] beyond `match` are
/// not touched: only the built graph knows them. `proven` holds "optimizer.NAME lr" of earlier calls, which
/// are skipped and added to: what a key may be taken for depends on its owner alone, so a set shared over
/// many configurations keeps the work to one round per option. `every`: of the renamings of a key, one in so
/// many.
MutationReport mutate_keys(const Config& config, const ComponentCatalog& catalog,
                           std::set<std::string>& proven, std::size_t every = 1);

}  // namespace config
TENON_ABI_END
