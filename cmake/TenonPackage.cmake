# Two packages of everything that cmake --install installs: `cpack -G DEB`, for Debian and its own libraries, and
# `cpack -G TGZ`, one folder that contains its libraries, for machines that have only glibc and libstdc++ (TenonArchive).
# One Debian package and not a pair of run time and -dev: within an epoch below 1 a plugin is built against the very version
# that loads it, and `tenon new-plugin` needs both sides.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tenon)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training framework in which every decision is a plugin")
set(CPACK_PACKAGE_DESCRIPTION "Layers, precision, optimizers, synchronisation, recovery, devices, transports, data sets\
 and observers are shared libraries; a run is a TOML file, an experiment two of them and a question.")
set(CPACK_PACKAGE_CONTACT "Tenon contributors <tenon@example.org>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The plugins use the libtenon_core.so of this package.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++ (>= 4:12), cmake (>= 3.25), ninja-build")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "pkg-config")

set(CPACK_ARCHIVE_FILE_NAME tenon-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/TenonCPackOptions.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/TenonArchive.cmake)
set(CPACK_TENON_DEPS ${TENON_DEPS_INSTALL_DIR})
set(CPACK_TENON_LIBDIR ${CMAKE_INSTALL_LIBDIR})
set(CPACK_TENON_DOCDIR ${CMAKE_INSTALL_DOCDIR})
include(CPack)
