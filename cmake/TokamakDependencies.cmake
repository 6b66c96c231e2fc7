# Defines every outside library as a target, so that folders name targets, not paths or -l flags:
#   fmt::fmt  spdlog::spdlog  nlohmann_json::nlohmann_json  CLI11::CLI11  Threads::Threads
#   OpenSSL::SSL  OpenSSL::Crypto  tokamak::boost_headers  tokamak::libedit
#   tokamak::pcre2  tokamak::re2  tokamak::utf8proc  tokamak::xxhash
#   tokamak::grpc++ (if TOKAMAK_WORKERS)  tokamak::giflib  tokamak::jpeg  tokamak::png  tokamak::webp
# If one is missing, the error names its Debian package (scripts/install-deps installs them all).
#
# Links pcre2, re2, utf8proc, xxhash and the image libraries statically if Debian has archives of
# them, so that the binary runs on machines without these libraries. TOKAMAK_STATIC_DEPS=OFF turns this off.
option(TOKAMAK_STATIC_DEPS "Prefer static archives of small libraries" ON)

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

function(tokamak_missing what package)
  message(FATAL_ERROR "${what} was not found. On Debian or Ubuntu: apt-get install ${package} "
                      "(scripts/install-deps installs everything that the build needs)")
endfunction()

# tokamak_headers(target HEADER h PACKAGE debian-package): an interface target for h's folder.
function(tokamak_headers target)
  cmake_parse_arguments(ARG "" "HEADER;PACKAGE" "" ${ARGN})
  if(TARGET ${target})
    return()
  endif()
  string(MAKE_C_IDENTIFIER "TOKAMAK_${target}_INCLUDE" include)
  find_path(${include} ${ARG_HEADER})
  mark_as_advanced(${include})
  if(NOT ${include})
    tokamak_missing("${ARG_HEADER}" ${ARG_PACKAGE})
  endif()
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE ${${include}})
endfunction()

# tokamak_import(target HEADER h LIBRARY name PACKAGE debian-package [STATIC] [FOR_PROGRAMS] [LINK libs...])
# Headers and a library. STATIC prefers libname.a and falls back to the shared one. FOR_PROGRAMS: Debian
# compiles the archive for programs only, so libtokamak.so needs the shared one.
function(tokamak_import target)
  cmake_parse_arguments(ARG "STATIC;FOR_PROGRAMS" "HEADER;LIBRARY;PACKAGE" "LINK" ${ARGN})
  tokamak_headers(${target} HEADER ${ARG_HEADER} PACKAGE ${ARG_PACKAGE})
  string(MAKE_C_IDENTIFIER "TOKAMAK_${target}_LIBRARY" library)
  set(names ${ARG_LIBRARY})
  if(ARG_STATIC AND TOKAMAK_STATIC_DEPS)
    set(names lib${ARG_LIBRARY}.a ${ARG_LIBRARY})
  endif()
  find_library(${library} NAMES ${names})
  mark_as_advanced(${library})
  if(NOT ${library})
    tokamak_missing("lib${ARG_LIBRARY}" ${ARG_PACKAGE})
  endif()
  set(found ${${library}})
  if(ARG_FOR_PROGRAMS)
    find_library(${library}_SHARED NAMES ${ARG_LIBRARY})
    mark_as_advanced(${library}_SHARED)
    set(is_shared $<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>)
    set(found $<IF:${is_shared},${${library}_SHARED},${found}>)
  endif()
  target_link_libraries(${target} INTERFACE ${found} ${ARG_LINK})
endfunction()

# tokamak_package(name PACKAGE debian-package): a library with its own CMake package.
macro(tokamak_package name)
  cmake_parse_arguments(ARG "" "PACKAGE" "" ${ARGN})
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    tokamak_missing("${name}" ${ARG_PACKAGE})
  endif()
endmacro()

tokamak_package(fmt PACKAGE libfmt-dev)
tokamak_package(spdlog PACKAGE libspdlog-dev)
tokamak_package(nlohmann_json PACKAGE nlohmann-json3-dev)
tokamak_package(CLI11 PACKAGE libcli11-dev)
tokamak_package(OpenSSL PACKAGE libssl-dev)
tokamak_import(tokamak::pcre2 HEADER pcre2.h LIBRARY pcre2-8 PACKAGE libpcre2-dev STATIC)
tokamak_import(tokamak::re2 HEADER re2/re2.h LIBRARY re2 PACKAGE libre2-dev STATIC FOR_PROGRAMS
               LINK Threads::Threads)
tokamak_import(tokamak::utf8proc HEADER utf8proc.h LIBRARY utf8proc PACKAGE libutf8proc-dev STATIC)
tokamak_import(tokamak::xxhash HEADER xxhash.h LIBRARY xxhash PACKAGE libxxhash-dev STATIC)
tokamak_import(tokamak::giflib HEADER gif_lib.h LIBRARY gif PACKAGE libgif-dev STATIC)
tokamak_import(tokamak::jpeg HEADER jpeglib.h LIBRARY jpeg PACKAGE libjpeg62-turbo-dev STATIC
               FOR_PROGRAMS)
tokamak_import(tokamak::zlib HEADER zlib.h LIBRARY z PACKAGE zlib1g-dev STATIC)
tokamak_import(tokamak::png HEADER png.h LIBRARY png PACKAGE libpng-dev STATIC
               FOR_PROGRAMS LINK tokamak::zlib)
tokamak_import(tokamak::webp_frames HEADER webp/decode.h LIBRARY webp PACKAGE libwebp-dev STATIC
               LINK Threads::Threads)
tokamak_import(tokamak::webp HEADER webp/demux.h LIBRARY webpdemux PACKAGE libwebp-dev STATIC
               LINK tokamak::webp_frames)
tokamak_import(tokamak::libedit HEADER histedit.h LIBRARY edit PACKAGE libedit-dev)

# gRPC, for worker processes. Debian's own CMake package has only the shared libraries.
find_path(TOKAMAK_grpc_INCLUDE grpcpp/grpcpp.h)
mark_as_advanced(TOKAMAK_grpc_INCLUDE)
set(have_grpc OFF)
if(TOKAMAK_grpc_INCLUDE)
  set(have_grpc ON)
endif()
option(TOKAMAK_WORKERS "Ranks in processes of their own (default: where gRPC is installed)" ${have_grpc})
if(TOKAMAK_WORKERS)
  set(absl)
  foreach(part bad_optional_access bad_variant_access base city civil_time cord cord_internal cordz_functions
          cordz_handle cordz_info debugging_internal demangle_internal exponential_biased graphcycles_internal
          hash hashtablez_sampler int128 log_severity low_level_hash malloc_internal
          random_internal_platform random_internal_pool_urbg random_internal_randen
          random_internal_randen_hwaes random_internal_randen_hwaes_impl random_internal_randen_slow
          random_internal_seed_material random_seed_gen_exception random_seed_sequences raw_hash_set
          raw_logging_internal spinlock_wait stacktrace status statusor str_format_internal strerror strings
          strings_internal symbolize synchronization throw_delegate time time_zone)
    tokamak_import(tokamak::absl_${part} HEADER absl/base/config.h LIBRARY absl_${part} PACKAGE libabsl-dev
                   STATIC FOR_PROGRAMS)
    list(APPEND absl tokamak::absl_${part})
  endforeach()
  tokamak_import(tokamak::cares HEADER ares.h LIBRARY cares PACKAGE libc-ares-dev STATIC FOR_PROGRAMS)
  set(grpc)
  foreach(part gpr upb address_sorting grpc grpc++)  # each before those that need it
    set(package libgrpc-dev)
    if(part STREQUAL grpc++)
      set(package libgrpc++-dev)
    endif()
    tokamak_import(tokamak::${part} HEADER grpcpp/grpcpp.h LIBRARY ${part} PACKAGE ${package}
                   STATIC FOR_PROGRAMS LINK ${grpc})
    list(PREPEND grpc tokamak::${part})
  endforeach()
  target_link_libraries(tokamak::grpc++ INTERFACE tokamak::re2 tokamak::cares tokamak::zlib OpenSSL::SSL
                        OpenSSL::Crypto ${absl} Threads::Threads)
endif()

# Asio and Beast, headers only. Older releases lack features that the server uses.
tokamak_headers(tokamak::boost_headers HEADER boost/beast.hpp PACKAGE libboost1.81-dev)
file(STRINGS ${TOKAMAK_tokamak__boost_headers_INCLUDE}/boost/version.hpp boost_version
     REGEX "#define BOOST_VERSION ")
string(REGEX REPLACE ".* ([0-9]+)$" "\\1" boost_version "${boost_version}")
if(boost_version LESS 108100)
  tokamak_missing("Boost 1.81 or newer (found ${boost_version})" libboost1.81-dev)
endif()
target_link_libraries(tokamak::boost_headers INTERFACE Threads::Threads)
# g++ 12 inlines one of the operators by which Asio allocates coroutines and misses the other.
target_compile_options(tokamak::boost_headers INTERFACE
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-mismatched-new-delete>)

if(TOKAMAK_TESTS)
  find_package(GTest REQUIRED)
endif()
