// The home of vtable and typeinfo of the interfaces that every plugin and every reader of data meets: one
// canonical copy, in the core. Alone, for builds of readers without the loader (tests/fuzz).
#include <tenon/host.hpp>
#include <tenon/identities.hpp>
#include <tenon/options.hpp>
#include <tenon/tokenizer.hpp>

TENON_ABI_BEGIN

Actor::~Actor() = default;
ComponentIdentities::~ComponentIdentities() = default;
Host::~Host() = default;
Options::~Options() = default;
Tokenizer::~Tokenizer() = default;
TokenizerFile::~TokenizerFile() = default;
TokenizerTraining::~TokenizerTraining() = default;

TENON_ABI_END
