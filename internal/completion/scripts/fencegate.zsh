#compdef fencegate
# Completion of fencegate for zsh. In ~/.zshrc, after compinit: source <(fencegate completion zsh)
_fencegate() {
	local line word
	local -a candidates
	while IFS= read -r line; do
		if [[ $line == :files ]]; then
			_files
			return
		fi
		word=${line%%$'\t'*}
		if [[ $line == *$'\t'* ]]; then
			candidates+=("${word//:/\\:}:${line#*$'\t'}")
		else
			candidates+=("${word//:/\\:}")
		fi
	done < <("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
	_describe fencegate candidates
}
compdef _fencegate fencegate
