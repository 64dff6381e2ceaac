# Completion of fencegate for fish. In ~/.config/fish/config.fish: fencegate completion fish | source
function __fencegate_complete
	set -l words (commandline --tokenize --cut-at-cursor --current-process)
	set -l current (commandline --current-token --cut-at-cursor)
	for line in ($words[1] __complete -- $words[2..] "$current" 2>/dev/null)
		if test "$line" = :files
			__fish_complete_path "$current"
		else
			echo $line
		end
	end
end
complete --command fencegate --no-files --arguments '(__fencegate_complete)'
