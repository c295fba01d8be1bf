// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization} from "../../src/gateway/Authorizations.sol";

/// @title ReferenceLedger
///
/// @notice What the gateway should do, in the plainest words: one payment at a time, nothing packed, nothing netted,
///         nothing checked that the test already knows. The gateway must agree with it after every step.
contract ReferenceLedger {
    mapping(address account => uint256 value) public available;
    mapping(address account => uint256 value) public withdrawing;
    mapping(address account => uint256 blockNumber) public withdrawalBlock;
    mapping(address account => mapping(bytes32 nonce => bool used)) public isUsed;

    mapping(address account => uint256 value) public deposited;
    mapping(address account => uint256 value) public paidOut;
    mapping(address account => uint256 value) public paidIn;
    mapping(address account => uint256 value) public withdrawn;

    address private immutable _gateway;

    constructor(address gateway) {
        _gateway = gateway;
    }

    function total(address account) public view returns (uint256) {
        return available[account] + withdrawing[account];
    }

    function deposit(address account, uint256 value) external {
        available[account] += value;
        deposited[account] += value;
    }

    /// @param wellSigned   Whether the payer's own key signed exactly this row for exactly this gateway
    /// @return settled     Whether the row must settle
    function pay(Authorization calldata row, bool wellSigned, uint256 timestamp) external returns (bool settled) {
        settled = wellSigned && row.value > 0 && row.from != row.to && row.to != address(0) && row.to != _gateway
            && timestamp > row.validAfter && timestamp < row.validBefore && !isUsed[row.from][row.nonce]
            && row.value <= total(row.from);
        if (!settled) return false;

        isUsed[row.from][row.nonce] = true;
        _take(row.from, row.value);
        available[row.to] += row.value;
        paidOut[row.from] += row.value;
        paidIn[row.to] += row.value;
    }

    function initiateWithdrawal(address account, uint256 value, uint256 dueBlock) external {
        available[account] -= value;
        withdrawing[account] += value;
        withdrawalBlock[account] = dueBlock;
    }

    function withdraw(address account) external returns (uint256 value) {
        value = withdrawing[account];
        withdrawing[account] = 0;
        withdrawalBlock[account] = 0;
        withdrawn[account] += value;
    }

    function instantWithdraw(address account, uint256 value) external {
        _take(account, value);
        withdrawn[account] += value;
    }

    function _take(address account, uint256 value) private {
        if (value <= available[account]) {
            available[account] -= value;
        } else {
            withdrawing[account] -= value - available[account];
            available[account] = 0;
        }
        if (withdrawing[account] == 0) withdrawalBlock[account] = 0;
    }
}
