"""What a host is asked about its packet filters. It reads; nothing is created, loaded or changed.

The kernel's rules decide, so they are read first; files of ufw, firewalld, nft and iptables only tell what of
ours they will load again. A part begins with a line `=====NAME WORDS`.
"""

from __future__ import annotations

from clusterkit.probes.firewall.rules import MARK

# Where nft's own service finds its rules: Debian and Arch, Red Hat, Alpine.
NFT_FILES = ("/etc/nftables.conf", "/etc/sysconfig/nftables.conf", "/etc/nftables.nft")
OWN_NFT_FILE = f"/etc/{MARK}.nft"

NFT_SERVICE = "nftables.service"

# What iptables' services load, the file by which the service is known, and its name: Debian, Red Hat.
IPTABLES_FILES = (
    (
        *("/etc/iptables/rules.v4", "/usr/share/netfilter-persistent/plugins.d/15-ip4tables"),
        "netfilter-persistent.service",
    ),
    ("/etc/sysconfig/iptables", "/usr/libexec/iptables/iptables.init", "iptables.service"),
)

UFW_RULES = "/etc/ufw/user.rules"
FIREWALLD_POLICY = f"/etc/firewalld/policies/{MARK}.xml"

# An answer of more than 1 MB would be lost as a whole.
_LARGE = 600_000

SHELL = rf"""
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin:/usr/local/sbin"
part() {{ printf '\n=====%s\n' "$*"; }}
there() {{ command -v "$1" >/dev/null 2>&1; }}

# What systemd starts at boot is a link; without systemd nobody here can tell.
idle() {{
    [ -d /run/systemd/system ] || return 0
    for link in /etc/systemd/system/*.wants/"$1" /usr/lib/systemd/system/*.wants/"$1"; do
        if [ -L "$link" ] || [ -e "$link" ]; then return 0; fi
    done
    part idle "$1"
}}

iptables_save() {{
    rules=$("$3" 2>/dev/null | sed '/^\*nat$/,/^COMMIT$/d') || return 0
    case $rules in *COMMIT*) ;; *) return 0 ;; esac
    part iptables "$1" "$2"
    printf '%s\n' "$rules"
    all=$all$rules
    if [ "$1" = nft ]; then
        taken="$taken $(printf '%s\n' "$rules" | sed -n 's/^\*//p' | tr '\n' ' ')nat "
    fi
}}
all= taken= tables=
plain() {{ case $(iptables --version 2>/dev/null) in *nf_tables*) echo nft ;; *) echo legacy ;; esac; }}
if there iptables-nft-save; then iptables_save nft iptables-nft iptables-nft-save
elif there iptables-save && [ "$(plain)" = nft ]; then iptables_save nft iptables iptables-save; fi
# (A file of /proc has no size.)
if {{ read -r first </proc/net/ip_tables_names; }} 2>/dev/null; then
    if there iptables-legacy-save; then iptables_save legacy iptables-legacy iptables-legacy-save
    elif there iptables-save && [ "$(plain)" = legacy ]; then iptables_save legacy iptables iptables-save
    else echo "the kernel has iptables rules, and no program is there to read them" >&2; exit 1; fi
fi
case $all in *--match-set*)
    if there ipset && sets=$(ipset save 2>/dev/null) && [ ${{#sets}} -lt 200000 ]; then
        part ipset; printf '%s\n' "$sets"
    fi ;;
esac

if there nft; then
    if tables=$(nft list tables 2>&1); then
        printf '%s\n' "$tables" | while read -r word family name; do
            [ "$word" = table ] || continue
            case $family in
                ip) case " $taken " in *" $name "*) continue ;; esac ;;
                inet | netdev) ;;
                *) continue ;;
            esac
            part nft
            if [ "$(nft -j list table "$family" "$name" | wc -c)" -lt {_LARGE} ]
            then nft -j list table "$family" "$name"; else nft -j -t list table "$family" "$name"; fi
        done
    else
        case $tables in
            *"not supported"* | *"No such file"* | *"nvalid argument"*) ;;
            *) printf 'nft: %s\n' "$tables" >&2; exit 1 ;;
        esac
    fi
fi

case "$all $tables" in *"inet firewalld"* | *INPUT_ZONES*)
    part firewalld
    sed -n 's/^DefaultZone=/default /p' /etc/firewalld/firewalld.conf 2>/dev/null
    if [ -d /usr/lib/firewalld/policies ]; then echo policies; fi
    ask=firewall-cmd
    if there timeout; then ask='timeout 6 firewall-cmd'; fi
    if ! zones=$($ask --list-all-zones 2>&1); then
        printf 'firewalld: %s\n' "$(printf '%s\n' "$zones" | tail -n 1)" >&2; exit 1
    fi
    printf '%s\n' "$zones" | grep -E '^[^[:space:]]|rule priority="-29400"'
    if [ -e {FIREWALLD_POLICY} ]; then $ask --info-policy={MARK} 2>/dev/null; fi ;;
esac
if [ -e {FIREWALLD_POLICY} ]; then part firewalld-policy; cat {FIREWALLD_POLICY}; fi

if [ -e {UFW_RULES} ]; then part ufw; grep '^### tuple ###' {UFW_RULES}; fi

if [ -e {OWN_NFT_FILE} ]; then part nft-own; cat {OWN_NFT_FILE}; fi
for file in {" ".join(NFT_FILES)}; do
    if [ -f $file ]; then
        part nft-file $file
        lines=$(grep -E '^[[:space:]]*(add[[:space:]]+)?(table|include)[[:space:]]' $file)
        printf '%s\n' "$lines"
        printf '%s\n' "$lines" | while IFS='"' read -r word pattern rest; do
            case $word in *include*) ;; *) continue ;; esac
            case $pattern in /*) ;; *) pattern=/etc/$pattern ;; esac
            for included in $pattern; do
                if [ -f "$included" ] && [ "$included" != {OWN_NFT_FILE} ]; then
                    grep -E '^[[:space:]]*(add[[:space:]]+)?table[[:space:]]' "$included"
                fi
            done
        done
    fi
done

for file in {" ".join(NFT_FILES)}; do if [ -f $file ]; then idle {NFT_SERVICE}; break; fi; done

saved() {{
    if [ -e "$2" ] && [ -f "$1" ]; then part iptables-file "$1"; grep -E '^\*|{MARK}' "$1"; idle "$3"; fi
}}
{chr(10).join(f"saved {file} {known_by} {service}" for file, known_by, service in IPTABLES_FILES)}
exit 0
"""
