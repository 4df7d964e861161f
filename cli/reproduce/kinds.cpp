// The registry of the kinds of studies.
#include "reproduce/study_kind.hpp"

namespace tenon::reproduce {

/// All kinds, each with the name of the function in its own source that makes it: KIND(slabs) is
/// make_slabs_kind().
#define TENON_STUDY_KINDS(KIND) \
  KIND(arms)                    \
  KIND(scaling)                 \
  KIND(time_to) KIND(slabs) KIND(map) KIND(recovery) KIND(sites) KIND(run_sites) KIND(filler) KIND(search)

#define TENON_DECLARE_KIND(name) std::shared_ptr<StudyKind> make_##name##_kind();
TENON_STUDY_KINDS(TENON_DECLARE_KIND)

std::vector<std::shared_ptr<StudyKind>> study_kinds() {
#define TENON_MAKE_KIND(name) make_##name##_kind(),
  return {TENON_STUDY_KINDS(TENON_MAKE_KIND)};
}

}  // namespace tenon::reproduce
