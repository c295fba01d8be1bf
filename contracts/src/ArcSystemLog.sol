// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

/// @title ArcSystemLog
///
/// @notice On Arc every movement of USDC is logged twice: by the token in 6 decimals, and by a system address in 18.
///         Whoever listens to both credits each deposit twice. This contract is that second voice, so that the trap is
///         in our tests and in the sandbox and not first met on Arc.
///
/// @dev A contract logs under its own address only, so the sandbox puts this code at the system address with
///      `hardhat_setCode`, taken by `eth_getCode` from a real deployment: the token is an immutable, part of the code.
contract ArcSystemLog {
    /// The one contract that may speak through this address.
    address public immutable token;

    /// The same event, and so the same first topic, as the token's own.
    event Transfer(address indexed from, address indexed to, uint256 value);

    error OnlyToken(address caller, address token);

    constructor(address token_) {
        token = token_;
    }

    /// @param value   In 18 decimals, as native coin
    function logTransfer(address from, address to, uint256 value) external {
        if (msg.sender != token) revert OnlyToken(msg.sender, token);
        emit Transfer(from, to, value);
    }
}
