# Read by the scripts beside it: the values of a site file for a shell without the program, as that
# may need the site's modules to start. Wants $root, the repository.

# The file of a site: a name in configs/sites, here or in the repository, or a path.
site_file() {
    case $1 in
    */* | *.toml) echo "$1" ;;
    *) if [ -e "configs/sites/$1.toml" ]; then echo "configs/sites/$1.toml"; else echo "$root/configs/sites/$1.toml"; fi ;;
    esac
}

# site_value FILE KEY DEFAULT: a string or a word.
site_value() {
    local value
    value=$(sed -n "s/^$2 *= *\"\{0,1\}\([A-Za-z0-9_]*\).*/\1/p" "$1")
    echo "${value:-$3}"
}

# site_modules FILE: the list `modules`, a name per line.
site_modules() {
    awk '/^modules[ \t]*=/ { on = 1 }
        on {
            sub(/#.*/, "")
            while (match($0, /"[^"]*"/)) {
                print substr($0, RSTART + 1, RLENGTH - 2)
                $0 = substr($0, RSTART + RLENGTH)
            }
            if (/\]/) exit
        }' "$1"
}

# Loads the modules of a site file. The module command does not work with -e or -u.
load_modules() {
    local file=$1 names init
    [ -e "$file" ] || fail "$file: no such site file; see configs/sites in the repository"
    names=$(site_modules "$file")
    [ -n "$names" ] || return 0
    set +eu
    for init in "$LMOD_PKG/init/bash" "$MODULESHOME/init/bash" /etc/profile.d/lmod.sh /etc/profile.d/modules.sh; do
        if ! type module >/dev/null 2>&1 && [ -r "$init" ]; then . "$init"; fi
    done
    type module >/dev/null 2>&1 ||
        fail "$file names modules, and this shell has no command module; set MODULESHOME, or empty the list"
    if [ "$(site_value "$file" purge_modules false)" = true ]; then module purge; fi
    for name in $names; do
        module load "$name" || fail "$file: module load $name failed; see module avail"
    done
    set -eu
}

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 2
}
